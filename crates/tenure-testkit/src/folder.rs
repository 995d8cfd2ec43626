//! The folders of servers: in memory, where the machine has a file system there.
//!
//! Sentinels and nodes of a cluster write their configuration to the disk whenever it changes, and do nothing else until it is there.
//! A disk that is busy with what a compiler has written stops all of them for half a minute, after which they believe that all others
//! are down. No test is about the disk: what a server has written survives its process in memory, too.

use std::path::Path;

use tempfile::TempDir;

/// A file system in memory that every Linux has.
const IN_MEMORY: &str = "/dev/shm";

/// A new folder for a server.
///
/// # Panics
///
/// If none can be created.
pub(crate) fn of_server() -> TempDir {
    let named = || {
        let mut builder = tempfile::Builder::new();
        builder.prefix("tenure-");
        builder
    };
    let in_memory = Path::new(IN_MEMORY).is_dir().then(|| named().tempdir_in(IN_MEMORY));
    let folder = in_memory.and_then(Result::ok).map_or_else(|| named().tempdir(), Ok);
    folder.expect("a test can create a folder in the temporary folder")
}
