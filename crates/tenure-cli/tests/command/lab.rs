//! `tenure lab` (R25): every stage breaks the lock of its time, and not Tenure.

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tenure_testkit::{Server, program};

/// Runs the lab with a server that the tests have.
fn lab(arguments: &[&str]) -> Output {
    let server = program::of_tests().unwrap();
    run(Command::new(env!("CARGO_BIN_EXE_tenure"))
        .arg("lab")
        .arg("--server")
        .arg(server)
        .args(arguments))
}

fn run(command: &mut Command) -> Output {
    command.env_remove("TENURE_URL").env_remove("REDIS_URL").stdin(Stdio::null()).output().unwrap()
}

fn stages(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What a lock did wrong. How late a lock is depends on the machine, which other tests use at the same time.
fn violations(lock: &Value) -> Vec<&str> {
    let all = lock["violations"].as_array().unwrap().iter().filter_map(Value::as_str);
    all.filter(|violation| !violation.contains("after a release, on average")).collect()
}

fn are_broken_and_tenure_is_not(numbers: &[usize]) {
    let mut arguments = vec!["--json".to_owned()];
    numbers.iter().for_each(|number| arguments.extend(["--stage".to_owned(), number.to_string()]));
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let output = lab(&arguments);
    let stages = stages(&output);
    assert_eq!(stages.len(), numbers.len(), "{output:?}");
    for stage in stages {
        let number = &stage["stage"];
        assert_eq!(stage["not_run"], Value::Null, "stage {number}");
        let [historic, tenure] = &stage["locks"].as_array().unwrap()[..] else { panic!("{stage}") };
        assert!(!violations(historic).is_empty(), "stage {number}: {historic}");
        assert!(violations(tenure).is_empty(), "stage {number}: {tenure}");
    }
}

#[test]
fn locks_break_by_crashes() {
    are_broken_and_tenure_is_not(&[1, 2, 3, 4]);
}

#[test]
fn locks_break_by_time() {
    are_broken_and_tenure_is_not(&[5, 6, 7]);
}

#[test]
fn locks_break_by_crowds() {
    are_broken_and_tenure_is_not(&[8, 9]);
}

#[test]
fn locks_break_with_their_servers() {
    are_broken_and_tenure_is_not(&[10, 11, 12]);
}

/// R15: 20 of 10 items are sold without a fence, and 10 with it.
#[test]
fn too_much_is_sold_without_a_fence() {
    let output = lab(&["--json", "--stage", "13"]);
    let stage = &stages(&output)[0];
    let [historic, tenure] = &stage["locks"].as_array().unwrap()[..] else { panic!("{stage}") };
    assert!(violations(historic).contains(&"20 sold of 10"), "{historic}");
    assert!(violations(tenure).is_empty(), "{tenure}");
    let facts = tenure["facts"].to_string();
    assert!(facts.contains("10 sales accepted, 1 refused by the data"), "{facts}");
}

#[test]
fn a_stage_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lab.svg");
    let output = lab(&["--stage", "3", "--svg", file.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("Stage 3 of 13: SET NX PX, released by DEL\n"), "{text}");
    assert!(text.contains("\n  A █") && text.contains("\n  C "), "{text}");
    assert!(
        text.contains("BROKEN A and B both believed for ") && text.contains("HELD   3 grants; "),
        "{text}"
    );
    assert!(!text.contains('\x1b'), "no colours in a pipe: {text}");
    let picture = std::fs::read_to_string(file).unwrap();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"), "{picture}");
}

/// On a server that others use nothing is left behind.
#[test]
fn a_server_that_is_there_is_used_for_some_stages() {
    let server = Server::builder().on_port().start();
    let url = server.url();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.args(["lab", "--json", "--stage", "1", "--stage", "8", "--stage", "12", "--url", &url]);
    let stages = stages(&run(&mut command));
    assert_eq!(stages[0]["not_run"], Value::Null);
    assert_eq!(stages[0]["locks"][0]["verdict"], "broken");
    for stage in &stages[1..] {
        assert!(stage["not_run"].as_str().unwrap().contains("servers of its own"), "{stage}");
    }
    let keys = server.connect().unwrap().command(&["KEYS", "tenure-lab*"]).unwrap();
    assert_eq!(keys, tenure_testkit::resp::Reply::Array(Some(Vec::new())));
}

#[test]
fn without_a_server_it_says_how_to_get_one() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    let output = run(command.args(["lab", "--stage", "1"]).env("PATH", "/nowhere"));
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(69), "{message}");
    assert!(message.contains("apt install redis-server") && message.contains("--url"), "{message}");
    let output = run(command.args(["--server", "/bin/false"]).env("PATH", "/bin:/usr/bin"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(69), "{text}");
    assert!(text.contains("Not run: the server ended at its start"), "{text}");
}

#[test]
fn the_stages_are_listed() {
    let output = run(Command::new(env!("CARGO_BIN_EXE_tenure")).arg("lab"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("  1  SETNX without expiry") && text.contains("tenure lab --all"),
        "{text}"
    );
    let output = lab(&["--stage", "14"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64), "{message}");
    assert!(message.contains("the stages are 1 to 13"), "{message}");
}
