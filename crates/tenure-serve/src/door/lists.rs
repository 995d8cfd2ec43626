//! The memory of lists: one of 10,000 locks takes several MB while it is built and until its client has read it.
//!
//! A few are built at a time; further requests wait, for no longer than those take. How fast a client reads is up to it, so what is
//! being read has a bound in bytes, and a list beyond it is refused: a few clients that do not read must not keep all others
//! waiting.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::Problem;

/// How many lists are built at a time.
const BUILT: usize = 4;

/// A list that is smaller needs no room: an answer of that size is what each connection may have.
const SMALL: usize = 64 * 1024;

/// The unit in which room is counted.
const KB: usize = 1024;

/// The lists that are built, and those that are read.
pub(crate) struct Lists {
    building: Arc<Semaphore>,
    room: Arc<Semaphore>,
    /// All of the room, in KB.
    most: usize,
}

impl Lists {
    /// With so many bytes for lists that clients have not read yet.
    pub(crate) fn new(bytes: usize) -> Self {
        let most = (bytes / KB).clamp(1, u32::MAX as usize);
        let (building, room) = (Semaphore::new(BUILT), Semaphore::new(most));
        Self { building: Arc::new(building), room: Arc::new(room), most }
    }

    /// Waits until a list may be built.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        // None never: it is not closed.
        self.building.clone().acquire_owned().await.ok()
    }

    /// A list that takes its room until it is written.
    pub(crate) fn hold(&self, text: String) -> Result<Bytes, Problem> {
        if text.len() <= SMALL {
            return Ok(text.into());
        }
        let size = u32::try_from(text.len().div_ceil(KB).min(self.most)).unwrap_or(u32::MAX);
        let room = self.room.clone().try_acquire_many_owned(size);
        let room = room.map_err(|_| Problem::overloaded("large lists are being read"))?;
        Ok(Bytes::from_owner(Held { text, _room: room }))
    }
}

struct Held {
    text: String,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}
