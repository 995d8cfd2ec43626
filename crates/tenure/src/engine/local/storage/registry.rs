//! Each store is opened once per process: LMDB's own lock on a file would be lost when a second
//! descriptor of it is closed.

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

/// What is set when a folder has been opened, or not.
type Opened = Arc<OnceLock<Result<(), StoreError>>>;

/// A folder, and the process that opens it: a forked child does not wait for a thread of its parent.
type Place = (u32, Identity);

#[derive(Default)]
struct Registry {
    /// By the file with the locks, and not by its path: a folder can be moved, mounted a second time,
    /// or removed and made anew.
    open: HashMap<Identity, Weak<Store>>,
    /// What threads are opening, which may take a while: they wait for other processes.
    opening: HashMap<Place, Opened>,
}

/// A share of the store of a folder. The last one closes it.
pub(crate) struct Shared {
    store: Option<Arc<Store>>,
}

impl Shared {
    /// The store of this folder, which has been prepared; if it is not open, with a map of so many
    /// bytes.
    pub(crate) fn open(folder: &Path, bytes: usize) -> Result<Self, StoreError> {
        Self::open_in(std::process::id(), folder, bytes)
    }

    pub(crate) fn open_in(process: u32, folder: &Path, bytes: usize) -> Result<Self, StoreError> {
        let identity = Identity::at(folder);
        let identity = identity.map_err(|error| errors::of_files(folder, &error))?;
        loop {
            match begin((process, identity), folder)? {
                Beginning::Open(share) => return Ok(share),
                Beginning::Ours(opening) => return opening.open(folder, bytes),
                // What that thread is refused, the others need not wait for again.
                Beginning::Others(opened) => opened.wait().clone()?,
            }
        }
    }
}

/// What becomes of a folder that is to be opened.
enum Beginning {
    Open(Shared),
    Ours(Opening),
    /// Another thread is opening it.
    Others(Opened),
}

fn begin(place: Place, folder: &Path) -> Result<Beginning, StoreError> {
    let mut registry = lock(&REGISTRY);
    let registry = registry.get_or_insert_default();
    let data = Identity::at(&folder.join(DATA)).ok();
    if let Some(store) = data.and_then(|data| registry.open.get(&data)?.upgrade()) {
        store.ensure_shared(place.0)?;
        return Ok(Beginning::Open(Shared { store: Some(store) }));
    }
    // LMDB has one map for a path, and the other one is still in use.
    let mut others = registry.open.values().filter_map(Weak::upgrade);
    if let Some(removed) = others.find(|it| it.folder() == folder) {
        return Err(removed.store_folder.in_use_here());
    }
    Ok(match registry.opening.entry(place) {
        Entry::Occupied(entry) => Beginning::Others(entry.get().clone()),
        Entry::Vacant(entry) => {
            Beginning::Ours(Opening { place, opened: entry.insert(Opened::default()).clone() })
        }
    })
}

/// The right to open a folder, which no other thread has. Given back by the drop.
struct Opening {
    place: Place,
    opened: Opened,
}

impl Opening {
    /// Opens it, without keeping those from their work who have other folders.
    fn open(self, folder: &Path, bytes: usize) -> Result<Shared, StoreError> {
        let store = Store::open(self.place.0, folder, bytes).map(Arc::new);
        if let Ok(store) = &store {
            let mut registry = lock(&REGISTRY);
            let open = &mut registry.get_or_insert_default().open;
            open.insert(store.store_folder.data_identity, Arc::downgrade(store));
        }
        let _ = self.opened.set(store.as_ref().map(drop).map_err(Clone::clone));
        Ok(Shared { store: Some(store?) })
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(registry) = lock(&REGISTRY).as_mut() {
            registry.opening.remove(&self.place);
        }
        // Nothing is set only if it has panicked.
        let _ = self.opened.set(Err(StoreError::refused("the store could not be opened")));
    }
}

impl Deref for Shared {
    type Target = Store;

    fn deref(&self) -> &Store {
        self.store.as_deref().expect("it is taken out only by the drop")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let is_of_parent = self.is_of_parent();
        // Under the lock, so that nobody opens the folder while it is being closed.
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
