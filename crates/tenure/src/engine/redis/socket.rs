//! A non-blocking socket that any thread may write; the I/O thread waits for it. Which other threads may read depends
//! on the system.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(super) use unix::{Receiver, Socket};
#[cfg(windows)]
pub(super) use windows::{Receiver, Socket};

use std::time::Duration;

/// How long a connection may be silent before the kernel probes the peer.
const KEEPALIVE: Duration = Duration::from_secs(5);
