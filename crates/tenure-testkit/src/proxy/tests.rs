//! A proxy leaves nothing behind.

use std::sync::Arc;

use super::{Direction, Proxy};
use crate::server::Server;

/// Every thread of a proxy shares its hub, so the hub is dropped when, and only when, all of them have ended.
#[test]
fn a_dropped_proxy_leaves_no_thread() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let hub = Arc::downgrade(&proxy.hub);
    let mut idle = proxy.connect().expect("the proxy listens");
    let mut held = proxy.connect().expect("the proxy listens");
    let mut dark = proxy.connect().expect("the proxy listens");
    idle.command(&["PING"]).expect("the proxy carries");
    let rule = proxy.hold(|command| command.has("held"), Direction::Requests);
    held.send(&["SET", "held", "1"]).expect("the proxy takes it");
    proxy.wait_until("a request is held", |proxy| proxy.strikes(rule) == 1);
    proxy.black_hole();
    dark.send(&["SET", "dark", "1"]).expect("the proxy takes it");
    proxy.wait_until("all are in", |proxy| proxy.seen(|command| command.has("dark")) == 1);
    drop(proxy);
    assert_eq!(hub.strong_count(), 0);
}

#[test]
fn an_unused_proxy_ends_too() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let hub = Arc::downgrade(&proxy.hub);
    drop(proxy);
    assert_eq!(hub.strong_count(), 0);
}
