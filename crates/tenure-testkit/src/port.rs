//! Free ports of 127.0.0.1.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Below the range from which the kernel gives ports to outgoing connections: a client that keeps
/// trying to reach a stopped server there could end up connected to itself, and keep the port. The
/// cluster bus, 10,000 above, stays below it too.
const PORTS: Range<u16> = 10_000..20_000;

/// The next candidate. It begins at random, so that test processes seldom collide.
static NEXT: LazyLock<AtomicUsize> =
    LazyLock::new(|| AtomicUsize::new(RandomState::new().hash_one(()) as usize));

/// Listens on a free port, and on none that this process had before. A client outlives its test while it has guards to
/// release, until their leases end, and reconnects to the addresses of its servers: a server of another test that got one of
/// them would be taken for a node that has lost its data, and be marked as such.
pub(crate) fn listen() -> TcpListener {
    let mut candidates = PORTS.map(|_| {
        let next = NEXT.fetch_add(1, Ordering::Relaxed) % PORTS.len();
        PORTS.start + u16::try_from(next).unwrap_or(0)
    });
    candidates
        .find_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok())
        .expect("ten thousand ports are never all taken")
}

/// A port that no process listens on at present.
pub(crate) fn free() -> u16 {
    number(&listen())
}

/// The port that this one listens on.
pub(crate) fn number(listener: &TcpListener) -> u16 {
    listener.local_addr().expect("a listener that is bound has an address").port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_had_twice() {
        let ports: std::collections::HashSet<_> = (0..500).map(|_| free()).collect();
        assert_eq!(ports.len(), 500);
    }
}
