//! The marker of a quorum: a server without it refuses every vote, with nothing changed. I1, I4, I6.

use tenure_testkit::Server;

use super::answers::{acquire, cancel, proposing, release, renewal, waiting};
use super::caller::Caller;
use super::*;

on_every_server!(
    a_node_without_its_marker_changes_nothing,
    a_node_that_lost_its_data_is_quarantined_until_it_is_marked,
);

const MARKER: &str = "3f9c:node-2-of-5";

/// One operation of each kind, all refused.
fn refuses_all(caller: &mut Caller, holder: Owner, waiter: Owner) {
    let before = caller.state();
    let now = caller.now.as_micros();
    let refusals = [
        caller.try_call(&[&proposing(acquire("new", waiter), now)]),
        caller.try_call(&[&acquire("x", holder)]),
        caller.try_call(&[&renewal("x", holder)]),
        caller.try_call(&[&release("x", holder)]),
        caller.try_call(&[&cancel("x", waiter)]),
    ];
    for refusal in refusals {
        let error = refusal.unwrap_err();
        assert!(error.contains("QUARANTINED this server"), "{error}");
    }
    assert_eq!(caller.state(), before);
}

fn a_node_without_its_marker_changes_nothing(server: &Server) {
    let mut caller = Caller::new(server);
    caller.marker = Some(MARKER.to_owned());
    let (holder, waiter) = (Owner::new(), Owner::new());
    caller.command(&["SET", keys::QUORUM, MARKER]);
    let now = caller.now.as_micros();
    assert!(caller.call(&[&proposing(acquire("x", holder), now)])[0].starts_with("1 "));
    let queued = proposing(waiting(acquire("x", waiter)), now + 1);
    assert!(caller.call(&[&queued])[0].starts_with("2 "));
    for other in ["3f9c:node-3-of-5", "3f9c:node-2-of-5 ", ""] {
        caller.command(&["SET", keys::QUORUM, other]);
        refuses_all(&mut caller, holder, waiter);
    }
    caller.command(&["DEL", keys::QUORUM]);
    refuses_all(&mut caller, holder, waiter);
    caller.command(&["SET", keys::QUORUM, MARKER]);
    assert_eq!(caller.call(&[&renewal("x", holder)]), ["1"]);
    assert_eq!(caller.call(&[&cancel("x", waiter)]), ["0"]);
    assert_eq!(caller.call(&[&release("x", holder)]), ["0"]);
}

/// The same through an engine, whose calls carry the marker.
fn a_node_that_lost_its_data_is_quarantined_until_it_is_marked(server: &Server) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let marker = Marker::new(MARKER).unwrap();
        let options = || Options {
            about: About::this_process(),
            retention: Duration::from_secs(1),
            quorum: Some(marker.clone()),
            ..Options::default()
        };
        let engine = RedisEngine::connect_as(&server.url(), options()).await.unwrap();
        assert_eq!(
            engine.server.routes.nodes()[0].commands.retention,
            30_000,
            "a node relies on it"
        );
        assert_eq!(engine.read_marker().await.unwrap(), None);
        let owner = Owner::new();
        let new = engine.acquire(acquire("x", owner)).await.unwrap_err();
        assert!(new.is_quarantined() && !new.is_unknown(), "{new}");
        engine.write_marker(&marker).await.unwrap();
        assert_eq!(engine.read_marker().await.unwrap().as_deref(), Some(MARKER));
        let granted = engine.acquire(acquire("x", owner)).await.unwrap();
        assert!(matches!(granted, Acquired::Granted(_)));
        assert_eq!(engine.inspect(name("x")).await.unwrap().holding, 1, "no vote");
        let mut connection = server.connect().unwrap();
        connection.command(&["FLUSHALL"]).unwrap();
        connection.command(&["SCRIPT", "FLUSH"]).unwrap();
        let renewed = engine.renew(vec![renewal("x", owner)]).await.unwrap().remove(0);
        assert!(renewed.unwrap_err().is_quarantined());
        assert!(engine.release(release("x", owner)).await.unwrap_err().is_quarantined());
        assert!(engine.cancel(cancel("x", owner)).await.unwrap_err().is_quarantined());
        engine.write_marker(&marker).await.unwrap();
        assert_eq!(
            engine.renew(vec![renewal("x", owner)]).await.unwrap()[0].clone().unwrap(),
            Renewed::NotHeld
        );
    });
}

fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

#[test]
fn a_marker_is_one_word() {
    assert!(Marker::new(MARKER).is_ok());
    for wrong in ["", "two words", "a\nb", "ü", &"x".repeat(129)] {
        assert!(Marker::new(wrong).is_err(), "{wrong:?}");
    }
}
