//! The name of this machine, for people.

use std::sync::Arc;

#[cfg(unix)]
pub(crate) fn name() -> Arc<str> {
    rustix::system::uname().nodename().to_string_lossy().into()
}

/// The system sets this variable for every process. It is up to 15 characters of the name, in capitals.
#[cfg(windows)]
pub(crate) fn name() -> Arc<str> {
    let name = std::env::var_os("COMPUTERNAME");
    name.map_or("unknown".into(), |name| name.to_string_lossy().into())
}
