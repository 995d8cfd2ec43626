//! Entry points for the fuzz targets in `fuzz/`: each takes any bytes and panics if an invariant is broken.
//!
//! Compiled with `--cfg fuzzing` only, and no part of the public API.

use crate::engine::fuzzing;
use crate::{Handle, LockName, Owner};

/// Replies of a server.
pub fn resp(data: &[u8]) {
    fuzzing::resp(data);
}

/// URLs of a store.
pub fn url(data: &[u8]) {
    fuzzing::url(data);
}

/// Records and messages of a local store.
pub fn record(data: &[u8]) {
    fuzzing::record(data);
}

/// A handle or an owner that is understood is understood the same after it is printed.
pub fn handle(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(handle) = text.parse::<Handle>() {
        assert_eq!(handle.to_string().parse::<Handle>().as_ref(), Ok(&handle));
    }
    if let Ok(owner) = text.parse::<Owner>() {
        assert_eq!(owner.to_string().parse::<Owner>().as_ref(), Ok(&owner));
    }
}

/// A name is taken as it is or refused, and prints without control characters.
pub fn name(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(name) = LockName::new(text) {
        assert_eq!(name.as_str(), text);
        assert!(!name.to_string().contains(char::is_control));
    }
}
