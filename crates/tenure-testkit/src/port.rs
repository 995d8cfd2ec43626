//! Free ports of 127.0.0.1.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

/// Below the range from which the kernel gives ports to outgoing connections: a client that keeps
/// trying to reach a stopped server there could end up connected to itself, and keep the port. The
/// cluster bus, 10,000 above, stays below it too.
const PORTS: Range<u16> = 10_000..20_000;

/// Listens on a free port. Random, so that test processes seldom collide.
pub(crate) fn listen() -> TcpListener {
    let offset = u16::try_from(RandomState::new().hash_one(()) % PORTS.len() as u64).unwrap_or(0);
    let mut candidates = (PORTS.start + offset..PORTS.end).chain(PORTS.start..PORTS.start + offset);
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
