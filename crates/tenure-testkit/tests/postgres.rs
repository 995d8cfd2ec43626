//! A PostgreSQL server for a test: it listens on its socket, and ends with the test, however that ends.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tenure_testkit::Postgres;

/// The process that the server's own file names.
fn server_in(folder: &Path) -> String {
    let file = fs::read_to_string(folder.join("data/postmaster.pid")).unwrap();
    file.lines().next().unwrap().to_owned()
}

/// Whether the process runs; one that has ended, and waits to be reaped, has no command line.
fn is_running(pid: &str) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

#[test]
fn a_dropped_postgres_leaves_no_server_and_no_folder() {
    let server = Postgres::start();
    let (folder, pid) = (server.folder().to_path_buf(), server_in(server.folder()));
    UnixStream::connect(folder.join(".s.PGSQL.5432")).unwrap();
    assert!(server.log().contains("ready to accept connections"), "{}", server.log());
    assert!(is_running(&pid));
    drop(server);
    assert!(!is_running(&pid) && !folder.exists());
}

#[test]
fn a_postgres_does_not_outlive_a_killed_test_process() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "holds_a_postgres_until_its_input_ends", "--ignored", "--nocapture"]);
    let mut test = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(test.stdout.take().unwrap()).lines();
    let folder = lines
        .map_while(Result::ok)
        .find_map(|line| line.split_once("runs in ").map(|(_, folder)| PathBuf::from(folder)));
    let folder = folder.expect("the other process prints its folder");
    let pid = server_in(&folder);
    test.kill().unwrap();
    test.wait().unwrap();
    wait_until(|| !is_running(&pid) && !folder.exists());
}

#[test]
#[ignore = "the other half of a_postgres_does_not_outlive_a_killed_test_process, which runs it"]
fn holds_a_postgres_until_its_input_ends() {
    let server = Postgres::start();
    println!("runs in {}", server.folder().display());
    let _ = std::io::stdin().read(&mut [0]);
}

#[expect(clippy::disallowed_methods, reason = "a process that is not our child sends no event")]
fn wait_until(is_so: impl Fn() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !is_so() {
        assert!(std::time::Instant::now() < end, "the server or its folder was left behind");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}
