//! Faults of whole connections.

use tenure_testkit::{Proxy, Server};

use super::fixture::{ask, assert_closed, assert_silent, is_set, ok, pong, send, start, value};

#[test]
fn a_black_hole_swallows_old_and_new_connections() {
    let (server, proxy) = start();
    let mut old = proxy.connect().unwrap();
    assert_eq!(ask(&mut old, "PING"), pong());
    proxy.black_hole();
    let mut new = proxy.connect().unwrap();
    send(&mut old, "SET old 1");
    send(&mut new, "SET new 1");
    proxy.wait_until("both have sent", |proxy| proxy.seen(is_set) == 2);
    assert_silent(&mut old);
    assert_silent(&mut new);
    assert_eq!((value(&server, "old"), value(&server, "new")), (None, None));
    assert_eq!(proxy.connections(), 2);
}

#[test]
fn after_healing_new_connections_work_and_old_ones_stay_dead() {
    let (server, proxy) = start();
    let mut old = proxy.connect().unwrap();
    assert_eq!(ask(&mut old, "PING"), pong());
    proxy.black_hole();
    let mut dark = proxy.connect().unwrap();
    send(&mut dark, "PING");
    proxy.wait_until("it is in", |proxy| proxy.connections() == 2);
    proxy.heal();
    assert_eq!(ask(&mut proxy.connect().unwrap(), "SET key new"), ok());
    for client in [&mut old, &mut dark] {
        send(client, "SET key dead");
        assert_silent(client);
    }
    assert_eq!(value(&server, "key").as_deref(), Some("new"));
    drop((old, dark));
    proxy.wait_until("the cut connections are closed", |proxy| proxy.connections() == 0);
}

#[test]
fn a_black_hole_hides_even_the_end_of_the_server() {
    let (mut server, proxy) = start();
    let mut client = proxy.connect().unwrap();
    assert_eq!(ask(&mut client, "PING"), pong());
    proxy.black_hole();
    server.kill();
    assert_silent(&mut client);
    assert_silent(&mut proxy.connect().unwrap());
}

#[test]
fn replies_on_their_way_into_a_black_hole_are_lost() {
    let (_server, proxy) = start();
    let held = proxy.hold(is_set, tenure_testkit::proxy::Direction::Replies);
    let mut client = proxy.connect().unwrap();
    send(&mut client, "SET key value");
    proxy.wait_until("the reply is held", |proxy| proxy.strikes(held) == 1);
    proxy.black_hole();
    proxy.release();
    assert_silent(&mut client);
}

#[test]
fn a_cut_closes_every_connection_and_new_ones_work() {
    let (_server, proxy) = start();
    let mut clients: Vec<_> = (0..3).map(|_| proxy.connect().unwrap()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(ask(client, "PING"), pong()));
    assert_eq!(proxy.connections(), 3);
    proxy.cut();
    assert_eq!(proxy.connections(), 0);
    clients.iter_mut().for_each(assert_closed);
    assert_eq!(ask(&mut proxy.connect().unwrap(), "PING"), pong());
}

#[test]
fn a_refused_connection_is_closed_at_once() {
    let (_server, proxy) = start();
    let mut old = proxy.connect().unwrap();
    assert_eq!(ask(&mut old, "PING"), pong());
    proxy.refuse(true);
    assert_closed(&mut proxy.connect().unwrap());
    assert_eq!(ask(&mut old, "PING"), pong(), "old ones go on");
    proxy.black_hole();
    assert_closed(&mut proxy.connect().unwrap());
    proxy.heal();
    proxy.refuse(false);
    assert_eq!(ask(&mut proxy.connect().unwrap(), "PING"), pong());
}

#[test]
fn the_servers_end_is_the_connections_end_and_it_may_come_back() {
    let (mut server, proxy) = start();
    let mut client = proxy.connect().unwrap();
    assert_eq!(ask(&mut client, "PING"), pong());
    server.kill();
    assert_closed(&mut client);
    assert_closed(&mut proxy.connect().unwrap());
    server.restart();
    assert_eq!(ask(&mut proxy.connect().unwrap(), "PING"), pong());
}

/// How many clients the server has, besides the one that asks.
fn clients_of(server: &Server) -> usize {
    let list = server.connect().unwrap().command(&["CLIENT", "LIST"]).unwrap();
    list.text().unwrap().lines().count() - 1
}

#[test]
fn a_client_that_leaves_leaves_the_server_too() {
    for is_dark in [false, true] {
        let (server, proxy) = start();
        let mut client = proxy.connect().unwrap();
        assert_eq!(ask(&mut client, "PING"), pong());
        // The one that greeted the server at its start may still be leaving.
        proxy.wait_until("it is the only one", |_| clients_of(&server) == 1);
        if is_dark {
            proxy.black_hole();
        }
        drop(client);
        proxy.wait_until("the server knows", |_| clients_of(&server) == 0);
    }
}

#[test]
fn connections_are_counted_while_they_are_open() {
    let (server, proxy) = start();
    let mut client = proxy.connect().unwrap();
    assert_eq!(ask(&mut client, "PING"), pong());
    let other = Proxy::start(&server);
    assert_eq!((proxy.connections(), other.connections()), (1, 0));
    drop(client);
    proxy.wait_until("the connection is closed", |proxy| proxy.connections() == 0);
}

#[test]
fn a_dropped_proxy_closes_its_connections_and_its_port() {
    let (_server, proxy) = start();
    let mut client = proxy.connect().unwrap();
    assert_eq!(ask(&mut client, "PING"), pong());
    let url = proxy.url();
    let address = url.strip_prefix("redis://").unwrap();
    drop(proxy);
    assert_closed(&mut client);
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn new_connections_lead_to_another_server_and_open_ones_stay() {
    let (one, proxy) = start();
    let other = Server::start();
    let mut open = proxy.connect().unwrap();
    assert_eq!(ask(&mut open, "PING"), pong());
    proxy.forward_to(&other);
    let mut new = proxy.connect().unwrap();
    assert_eq!(ask(&mut new, "SET which other"), ok());
    assert_eq!(ask(&mut open, "SET which one"), ok());
    assert_eq!(value(&one, "which").as_deref(), Some("one"));
    assert_eq!(value(&other, "which").as_deref(), Some("other"));
}
