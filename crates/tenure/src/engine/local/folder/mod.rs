//! The folder that the clients share. It decides which folder a store is in, whether it is safe to use, and whether
//! it is still the one that was opened. Upholds I1: a folder that could show two clients different locks is refused.
//!
//! - [`location`]: the path; it must belong to this user alone. [`file_system`] names the file systems that work.
//! - [`store_folder`]: detects that the folder was removed, moved or replaced while in use.
//! - [`boot`]: discards the files of an earlier boot. [`preallocate`]: disk blocks for LMDB's lock file.

pub(crate) mod boot;
pub(crate) mod file_system;
mod location;
pub(crate) mod preallocate;
pub(crate) mod store_folder;

pub(crate) use self::location::{CLIENTS, DATA, default_folder, prepare};
