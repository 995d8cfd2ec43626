//! Each store is opened once per process: closing a second descriptor of the file would drop LMDB's own lock on it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use super::store::Store;
use crate::engine::local::errors;
use crate::engine::local::folder::DATA;
use crate::engine::local::folder::store_folder::Identity;
use crate::error::StoreError;
use crate::sync::lock;

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

/// Set when a folder was opened, or could not be.
type Opened = Arc<OnceLock<Result<(), StoreError>>>;

/// The process and the folder that it opens: a forked child must not wait for a thread of its parent.
type OpeningKey = (u32, Identity);

#[derive(Default)]
struct Registry {
    /// By the file with the locks, and not by its path: a folder can be moved, mounted a second time, or removed and
    /// created again.
    open: HashMap<Identity, Weak<Store>>,
    /// The folders that threads are opening, which may take a while: they wait for other processes.
    opening: HashMap<OpeningKey, Opened>,
}

/// A reference to the store of a folder. Dropping the last one closes the store.
pub(crate) struct StoreHandle {
    store: Option<Arc<Store>>,
}

impl StoreHandle {
    /// The store of this folder, which the caller has prepared. If it is not open yet, its map gets this many bytes.
    pub(crate) fn open(folder: &Path, bytes: usize) -> Result<Self, StoreError> {
        Self::open_in(std::process::id(), folder, bytes)
    }

    pub(crate) fn open_in(process: u32, folder: &Path, bytes: usize) -> Result<Self, StoreError> {
        let identity = Identity::at(folder);
        let identity = identity.map_err(|error| errors::of_files(folder, &error))?;
        loop {
            match find_or_start((process, identity), folder)? {
                OpenState::Open(store) => return Ok(store),
                OpenState::Claimed(opening) => return opening.open(folder, bytes),
                // The other threads get the same error, and do not wait again.
                OpenState::InProgress(opened) => opened.wait().clone()?,
            }
        }
    }
}

/// The state of a folder that a thread is about to open.
enum OpenState {
    Open(StoreHandle),
    /// This thread opens it.
    Claimed(Opening),
    /// Another thread is opening it.
    InProgress(Opened),
}

fn find_or_start(key: OpeningKey, folder: &Path) -> Result<OpenState, StoreError> {
    let mut registry = lock(&REGISTRY);
    let registry = registry.get_or_insert_default();
    let data = Identity::at(&folder.join(DATA)).ok();
    if let Some(store) = data.and_then(|data| registry.open.get(&data)?.upgrade()) {
        store.ensure_shared(key.0)?;
        return Ok(OpenState::Open(StoreHandle { store: Some(store) }));
    }
    // LMDB has one map per path, and the map of the removed folder is still in use.
    let mut others = registry.open.values().filter_map(Weak::upgrade);
    if let Some(removed) = others.find(|it| it.folder() == folder) {
        return Err(removed.store_folder.replaced_error());
    }
    Ok(match registry.opening.entry(key) {
        Entry::Occupied(entry) => OpenState::InProgress(entry.get().clone()),
        Entry::Vacant(entry) => {
            OpenState::Claimed(Opening { key, opened: entry.insert(Opened::default()).clone() })
        }
    })
}

/// The exclusive right of one thread to open a folder. Given up by the drop.
struct Opening {
    key: OpeningKey,
    opened: Opened,
}

impl Opening {
    /// Opens the store without holding the registry, so that threads that use other folders are not blocked.
    fn open(self, folder: &Path, bytes: usize) -> Result<StoreHandle, StoreError> {
        let store = Store::open(self.key.0, folder, bytes).map(Arc::new);
        if let Ok(store) = &store {
            let mut registry = lock(&REGISTRY);
            let open = &mut registry.get_or_insert_default().open;
            open.insert(store.store_folder.data_identity, Arc::downgrade(store));
        }
        let _ = self.opened.set(store.as_ref().map(drop).map_err(Clone::clone));
        Ok(StoreHandle { store: Some(store?) })
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(registry) = lock(&REGISTRY).as_mut() {
            registry.opening.remove(&self.key);
        }
        // Has an effect only after a panic.
        let _ = self.opened.set(Err(StoreError::refused("the store could not be opened")));
    }
}

impl Deref for StoreHandle {
    type Target = Store;

    fn deref(&self) -> &Store {
        self.store.as_deref().expect("only the drop takes the store out")
    }
}

impl Drop for StoreHandle {
    fn drop(&mut self) {
        let is_of_parent = self.is_of_parent();
        // Under the lock, so that no thread opens the folder while it is being closed.
        let mut registry = lock(&REGISTRY);
        let Some(store) = self.store.take() else {
            return;
        };
        if is_of_parent {
            // A forked child must not close what its parent has open.
            std::mem::forget(store);
            return;
        }
        let data = store.store_folder.data_identity;
        drop(store);
        if let Some(Registry { open, .. }) = registry.as_mut()
            && open.get(&data).is_some_and(|it| it.strong_count() == 0)
        {
            open.remove(&data);
        }
    }
}
