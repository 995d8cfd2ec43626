//! R15: the fence, checked in the database. The oversell case on a real database and a real server: a
//! holder is stopped past its lease, and then tries to sell an item that is sold already.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use rusqlite::{Connection, named_params};
use tenure::fenced::{REDIS_REGISTER, REDIS_SET, SQL_CHECK, SQL_SET};
use tenure::{Fence, Tenure, blocking::block_on};
use tenure_testkit::{Server, resp::Reply};

/// The fences of a holder that lost the lock, and of its current holder.
fn overtaken_and_current() -> (Fence, Fence) {
    let tenure = Tenure::memory().unwrap();
    let lock = tenure.lock("stock").fixed_lease(Duration::from_millis(20));
    block_on(async {
        let stopped = lock.acquire().await.unwrap();
        let current = lock.acquire().await.unwrap();
        assert!(stopped.is_lost());
        (stopped.fence(), current.fence())
    })
}

#[test]
fn sql_refuses_an_overtaken_writer() {
    let database = Connection::open_in_memory().unwrap();
    database
        .execute_batch(
            "CREATE TABLE stock (item TEXT, left INTEGER, fence BIGINT NOT NULL DEFAULT 0);
             INSERT INTO stock (item, left) VALUES ('lamp', 1);",
        )
        .unwrap();
    let set_left =
        format!("UPDATE stock SET left = :left, {SQL_SET} WHERE item = 'lamp' AND {SQL_CHECK}");
    let write = |left: i64, fence: Fence| {
        let parameters = named_params! { ":left": left, ":fence": fence.value() as i64 };
        database.execute(&set_left, parameters).unwrap()
    };
    let (overtaken, current) = overtaken_and_current();
    assert_eq!(write(0, current), 1, "sold");
    assert_eq!(write(0, current), 1, "the same holder may write again");
    assert_eq!(write(0, overtaken), 0, "not sold again");
}

#[test]
fn redis_refuses_an_overtaken_writer() {
    let server = Server::start();
    let mut connection = server.connect().unwrap();
    let (overtaken, current) = overtaken_and_current();
    let mut write = |fence: Fence, value: &str| {
        let fence = fence.to_string();
        connection
            .command(&["EVAL", REDIS_SET, "2", "{stock}:left", "{stock}:fence", &fence, value])
            .unwrap()
    };
    assert_eq!(write(current, "sold by current"), Reply::Integer(1));
    assert_eq!(write(overtaken, "sold by overtaken"), Reply::Integer(0));
    assert_eq!(write(current, "again"), Reply::Integer(1));
    for wrong in ["", "x", "-1", "1e99", "99999999999999999"] {
        for script in [REDIS_SET, REDIS_REGISTER] {
            let keys: &[&str] = if script == REDIS_SET {
                &["2", "{new}:left", "{new}:fence"]
            } else {
                &["1", "{new}:fence"]
            };
            let words = [&["EVAL", script], keys, &[wrong, "value"]].concat();
            let refused = server.connect().unwrap().command(&words).unwrap();
            assert!(matches!(refused, Reply::Error(_)), "{wrong}: {refused:?}");
        }
    }
    let value = connection.command(&["GET", "{stock}:left"]).unwrap();
    assert_eq!(value, Reply::Bulk(Some(b"again".to_vec())));
}
