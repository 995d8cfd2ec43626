//! Each store is opened once per process: LMDB's own lock on a file would be lost when a second
//! descriptor of it is closed.

use std::collections::HashMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

use super::folder::DATA;
use super::home::Identity;
use super::store::Store;
use crate::error::Trouble;
use crate::sync::lock;

/// By the file with the locks, and not by its path: a folder can be moved, mounted a second time, or
/// removed and made anew.
static OPEN: Mutex<Option<HashMap<Identity, Weak<Store>>>> = Mutex::new(None);

/// A share of the store of a folder. The last one closes it.
pub(super) struct Shared {
    store: Option<Arc<Store>>,
}

impl Shared {
    /// The store of this folder, which has been prepared; if it is not open, with a map of so many
    /// bytes.
    pub(super) fn open(folder: &Path, bytes: usize) -> Result<Self, Trouble> {
        Self::open_in(std::process::id(), folder, bytes)
    }

    pub(super) fn open_in(process: u32, folder: &Path, bytes: usize) -> Result<Self, Trouble> {
        let mut open = lock(&OPEN);
        let open = open.get_or_insert_default();
        let data = Identity::at(&folder.join(DATA)).ok();
        if let Some(store) = data.and_then(|data| open.get(&data)?.upgrade()) {
            store.ensure_shared(process)?;
            return Ok(Self { store: Some(store) });
        }
        // LMDB has one map for a path, and the other one is still in use.
        let others = open.values().filter_map(Weak::upgrade);
        if let Some(removed) = others.into_iter().find(|it| it.folder() == folder) {
            return Err(removed.home.in_use_here());
        }
        let store = Arc::new(Store::open(process, folder, bytes)?);
        open.insert(store.home.data_identity, Arc::downgrade(&store));
        Ok(Self { store: Some(store) })
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
        let mut open = lock(&OPEN);
        let Some(store) = self.store.take() else {
            return;
        };
        if is_of_parent {
            // A forked child must not close what its parent has open.
            std::mem::forget(store);
            return;
        }
        let data = store.home.data_identity;
        drop(store);
        if let Some(open) = open.as_mut()
            && open.get(&data).is_some_and(|it| it.strong_count() == 0)
        {
            open.remove(&data);
        }
    }
}
