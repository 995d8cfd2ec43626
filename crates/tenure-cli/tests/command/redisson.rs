//! The command on locks that Java services share (R30).

use tenure_testkit::{Codec, Redisson, Server};

use crate::fixture::{Fixture, Holder, WAITS};

/// A server whose locks are in Redisson's format, and the same server for locks in Tenure's.
fn fixtures() -> (Fixture, Fixture, u16) {
    let server = Server::builder().on_port().start();
    let (port, url) = (server.port().unwrap(), server.url());
    let own = Fixture::of(server);
    let shared = Fixture { url: format!("{url}?protocol=redisson"), ..Fixture::local() };
    (own, shared, port)
}

/// Everything that is known of a Java thread: its client, its number, how often it has entered, and the rest of its lease.
#[test]
fn a_java_holder_is_shown_as_what_is_known() {
    let Some(redisson) = Redisson::for_test() else { return };
    let (own, shared, port) = fixtures();
    let java = redisson.start(port, false, Codec::Default);
    java.run("a", "lock", "orders/42", "");
    java.run("a", "lock", "orders/42", "");
    let shown = shared.said(&["show", "orders/42"]);
    assert!(shown.contains("orders/42: mutex") && shown.contains("held by redisson "), "{shown}");
    assert!(shown.contains(" thread ") && shown.contains("entered 2 times"), "{shown}");
    assert!(shown.contains("lease left 2") && !shown.contains("since"), "{shown}");
    assert!(!shown.contains("fence"), "{shown}");
    let listed = shared.said(&["ls"]);
    assert!(listed.contains("orders/42") && listed.contains("redisson "), "{listed}");
    let lock = &shared.json(&["ls", "--json"])["locks"][0];
    let holder = &lock["holders"][0];
    assert_eq!((&lock["kind"], &holder["entries"]), (&"mutex".into(), &2.into()));
    assert!(holder["fence"].is_null() && holder["since_ms"].is_null(), "{holder}");
    assert!(holder["lease_left_ms"].as_u64().unwrap() > 15_000, "{holder}");
    assert_eq!(shared.code(&["run", "-n", "orders/42", "--", "true"]), 75);

    let found = own.said(&["doctor"]);
    let said = "Redisson's locks are in use, such as `orders/42`";
    assert!(found.contains(said) && found.contains("?protocol=redisson"), "{found}");
    let held = Holder::start(&own, &["run", "orders/42", "--", "sh", "-c", WAITS]);
    let output = own.output(&["doctor"]);
    let found = String::from_utf8(output.stdout).unwrap();
    assert!(found.contains("is held in Tenure's format and in Redisson's"), "{found}");
    held.stop();
    java.run("a", "unlock", "orders/42", "");
    java.run("a", "unlock", "orders/42", "");
    shared.said(&["run", "orders/42", "--", "true"]);
}

/// Commands that exclude each other, without Java: the format is in the URL, and a command has no fence.
#[test]
fn a_command_runs_under_a_lock_of_redissons() {
    let (_server, shared, _) = fixtures();
    let held = Holder::start(&shared, &["run", "job", "--", "sh", "-c", WAITS]);
    assert_eq!(shared.code(&["run", "-n", "job", "--", "true"]), 75);
    let shown = shared.said(&["show", "job"]);
    assert!(shown.contains("held by tenure@unknown"), "{shown}");
    held.stop();
    let said = shared.said(&["run", "job", "--", "sh", "-c", "echo ${TENURE_FENCE-none}"]);
    assert_eq!(said, "none\n");
    let fenced = format!("{}&fenced=true", shared.url);
    let shared = Fixture { url: fenced, ..shared };
    for token in ["1\n", "2\n"] {
        let said = shared.said(&["run", "job", "--", "sh", "-c", "echo $TENURE_FENCE"]);
        assert_eq!(said, token);
    }
    let refused = shared.refused(64, &["run", "--note", "nightly", "job", "--", "true"]);
    assert!(refused.contains("cannot keep a note"), "{refused}");
    let output = shared.output(&["doctor"]);
    let found = String::from_utf8(output.stdout).unwrap();
    assert!(found.contains("fine     operations"), "{found}");
    assert!(found.contains("fine     permissions"), "{found}");
}
