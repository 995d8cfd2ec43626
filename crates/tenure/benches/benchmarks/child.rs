//! Child processes of a measurement.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use tenure::blocking::block_on;

use super::{local, redis_contended};

/// A child that has connected, and waits for the start signal.
pub(crate) struct Ready {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

pub(crate) fn spawn(role: &str, url: &str, shared: &str) -> Ready {
    let program = std::env::current_exe().expect("this program");
    let mut child = Command::new(program)
        .args(["--child", role, url, shared])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let output = BufReader::new(child.stdout.take().expect("its output"));
    Ready { child, output }
}

impl Ready {
    pub(crate) fn wait(mut self) -> Self {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a word");
        assert_eq!(line.trim(), "ready");
        self
    }

    pub(crate) fn go(&mut self) {
        self.child.stdin.as_mut().expect("its input").write_all(b"go\n").expect("started");
    }

    pub(crate) fn report(mut self) -> Vec<f64> {
        let lines = (&mut self.output).lines().map_while(Result::ok);
        let numbers = lines.filter_map(|line| line.parse().ok()).collect();
        self.child.wait().expect("its end");
        numbers
    }
}

/// The body of a child.
pub(crate) fn be(role: &str, url: &str, shared: &str) {
    if let Some(number) = role.strip_prefix("relay") {
        return redis_contended::relay(number, url, shared);
    }
    let tenure = block_on(tenure::Tenure::connect(url)).expect("a client");
    let lock = tenure.lock("x").blocking();
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).expect("the start signal");
    match role {
        "contend" => redis_contended::contend(&lock),
        "handover" => redis_contended::hand_over(&lock, shared),
        "empty" => redis_contended::empty_sections(&lock),
        _ => local::fight(&lock),
    }
}
