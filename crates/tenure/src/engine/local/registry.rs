//! Each folder is opened once per process: LMDB's own lock on a file would be lost when a second
//! descriptor of it is closed.

use std::collections::HashMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use super::store::Store;
use crate::error::Trouble;
use crate::sync::lock;

static OPEN: Mutex<Option<HashMap<PathBuf, Weak<Store>>>> = Mutex::new(None);

/// A share of the store of a folder. The last one closes it.
pub(super) struct Shared {
    store: Option<Arc<Store>>,
}

impl Shared {
    /// The store of this folder, which has been prepared; if it is not open, with a map of so many
    /// bytes.
    pub(super) fn open(folder: &Path, bytes: usize) -> Result<Self, Trouble> {
        let mut open = lock(&OPEN);
        let open = open.get_or_insert_default();
        if let Some(store) = open.get(folder).and_then(Weak::upgrade) {
            return Ok(Self { store: Some(store) });
        }
        let store = Arc::new(Store::open(folder, bytes)?);
        open.insert(folder.to_owned(), Arc::downgrade(&store));
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
        let folder = store.folder().to_owned();
        drop(store);
        if let Some(open) = open.as_mut()
            && open.get(&folder).is_some_and(|it| it.strong_count() == 0)
        {
            open.remove(&folder);
        }
    }
}
