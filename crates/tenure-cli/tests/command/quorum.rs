//! `tenure quorum init`, and locks on a quorum from the shell.

use serde_json::Value;
use tenure_testkit::{Flavor, Server};

use crate::fixture::Fixture;

fn start() -> Server {
    Server::builder().flavor(Flavor::Redis).on_port().start()
}

fn host(server: &Server) -> String {
    format!("127.0.0.1:{}", server.port().unwrap())
}

#[test]
fn servers_are_marked_once_and_then_have_locks() {
    if Flavor::Redis.is_left_out() {
        return;
    }
    let servers = [start(), start(), start()];
    let hosts = servers.each_ref().map(host);
    let [first, _second, _third] = servers;
    let mut fixture = Fixture::of(first);
    fixture.url = format!("redis+quorum://{}", hosts.join(","));
    let unmarked = fixture.output(&["run", "x", "--", "true"]);
    assert_eq!(unmarked.status.code(), Some(69));
    let said = String::from_utf8(unmarked.stderr).unwrap();
    assert!(said.contains("run `tenure quorum init` once"), "{said}");
    let said = fixture.said(&["quorum", "init", "--max-lease", "2m"]);
    assert!(said.contains("of 3 nodes, with leases of 120s at most"), "{said}");
    assert!(fixture.said(&["quorum", "init"]).contains("exists already"));
    let other = fixture.output(&["quorum", "init", "--max-lease", "1m"]);
    let said = String::from_utf8(other.stderr).unwrap();
    assert!(
        !other.status.success() && said.contains("with leases of 120s at most: add --force"),
        "{said}"
    );
    let short = fixture.output(&["quorum", "init", "--max-lease", "5s"]);
    assert_eq!(short.status.code(), Some(64), "clients have leases of 30 s");
    assert_eq!(fixture.said(&["run", "x", "--", "echo", "done"]), "done\n");
    let said = fixture.said(&["doctor"]);
    assert!(said.contains("3 of 3 nodes vote"), "{said}");
    assert!(said.contains("the calendars of the nodes differ by"), "{said}");
}

/// What a minority says is shown as well, and its text cannot control a terminal.
#[test]
fn show_says_which_nodes_do_not_agree() {
    if Flavor::Redis.is_left_out() {
        return;
    }
    let [first, mut second, third] = [start(), start(), start()];
    let hosts = [&first, &second, &third].map(host);
    let (alone, silent) = (first.url(), hosts[1].clone());
    let mut fixture = Fixture::of(first);
    fixture.url = format!("redis+quorum://{}", hosts.join(","));
    fixture.said(&["quorum", "init"]);
    assert_eq!(fixture.json(&["show", "--json", "x"])["disagreement"], Value::Null);
    // Someone holds it at one node alone, by mistake; another node is down.
    fixture.said(&["acquire", "x", "--url", &alone, "--note", "by \u{1b}[31mmistake"]);
    second.kill();
    let said = fixture.said(&["show", "x"]);
    assert!(said.contains("x: free\n  not all nodes agree: "), "{said}");
    assert!(said.contains(&format!("{} alone has ", hosts[0])), "{said}");
    assert!(said.contains(&format!("{silent} did not answer")), "{said}");
    assert!(said.contains("mistake") && !said.contains('\u{1b}'), "{said}");
    let shown = fixture.json(&["show", "--json", "x"])["disagreement"].to_string();
    assert!(shown.contains("did not answer"), "{shown}");
}
