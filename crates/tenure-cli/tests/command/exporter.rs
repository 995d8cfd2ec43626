//! `tenure exporter` (R21), as Prometheus reads it; and the alerts, recordings and the dashboard, judged by a real Prometheus.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tenure_testkit::{Server, Toolset};

use crate::fixture::{Fixture, until};

/// A process that ends with its test.
struct Running {
    child: Child,
    address: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An exporter, which says where it listens.
fn exporter(url: &str) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.args(["exporter", "--listen", "127.0.0.1:0", "--prefix", "orders/", "--url", url]);
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("tenure: serving http://").expect(&line);
    let address = address.strip_suffix("/metrics").unwrap().to_owned();
    Running { child, address }
}

/// The status and the body of a page.
fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[test]
fn the_store_is_shown_to_prometheus() {
    let mut fixture = Fixture::of(Server::builder().on_port().start());
    let exporter = exporter(&fixture.url);
    let _handle = fixture.said(&["acquire", "orders/1"]);
    let page = || get(&exporter.address, "/metrics").1;
    until("the lock is shown", || {
        page().contains("tenure_store_holders{prefix=\"orders/\",kind=\"mutex\"} 1\n")
    });
    assert!(!page().contains("orders/1"), "no name is shown");
    assert!(page().contains("\ntenure_store_up 1\n"));
    let (status, _) = get(&exporter.address, "/other");
    assert!(status.contains("404"), "{status}");
    let promtool = tools().join("promtool");
    let mut check = Command::new(promtool);
    let mut check = check.args(["check", "metrics"]).stdin(Stdio::piped()).spawn().unwrap();
    check.stdin.take().unwrap().write_all(page().as_bytes()).unwrap();
    assert!(check.wait().unwrap().success());
    fixture.server().kill();
    until("it is shown as down", || page().contains("\ntenure_store_up 0\n"));
    fixture.server().restart();
    until("it is shown again", || page().contains("\ntenure_store_up 1\n"));
}

#[test]
fn a_store_that_is_down_at_first_is_shown_later() {
    let mut server = Server::builder().on_port().start();
    server.kill();
    let exporter = exporter(&server.url());
    let page = || get(&exporter.address, "/metrics").1;
    assert!(page().contains("\ntenure_store_up 0\n"));
    server.restart();
    until("it is shown", || page().contains("\ntenure_store_up 1\n"));
}

/// Where the tests' Prometheus is.
fn tools() -> PathBuf {
    Toolset::Prometheus.find().unwrap_or_else(|missing| panic!("{missing}"))
}

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

#[test]
fn the_alerts_fire_when_they_should() {
    let promtool = |arguments: &[&str]| {
        let mut command = Command::new(tools().join("promtool"));
        command.args(arguments).current_dir(packaging().join("prometheus")).output().unwrap()
    };
    for arguments in
        [&["check", "rules", "alerts.yml", "recording.yml"][..], &["test", "rules", "tests.yml"]]
    {
        let output = promtool(arguments);
        assert!(output.status.success(), "{output:?}");
    }
}

/// Every query of the dashboard, asked of a Prometheus that reads a real exporter and has the rules.
#[test]
fn the_dashboard_shows_a_real_store() {
    let fixture = Fixture::of(Server::builder().on_port().start());
    let _handle = fixture.said(&["acquire", "orders/1"]);
    let exporter = exporter(&fixture.url);
    let folder = tempfile::tempdir().unwrap();
    let prometheus = prometheus(folder.path(), &exporter.address);
    let ask = |expression: &str| {
        let query: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let (_, body) = get(&prometheus.address, &format!("/api/v1/query?query={query}"));
        let start = body.find('{').unwrap_or(0);
        let end = body.rfind('}').map_or(body.len(), |at| at + 1);
        serde_json::from_str::<Value>(&body[start..end]).unwrap_or(Value::Null)
    };
    until("the exporter was read", || {
        ask("tenure_store_up")["data"]["result"][0]["value"][1] == "1"
    });
    let dashboard = std::fs::read_to_string(packaging().join("grafana/tenure.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let targets = dashboard["panels"].as_array().unwrap().iter();
    let targets: Vec<_> = targets.flat_map(|panel| panel["targets"].as_array().unwrap()).collect();
    assert!(targets.len() > 20);
    for target in targets {
        let expression = target["expr"].as_str().unwrap();
        let answer = ask(expression);
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        // The other metrics are those of services.
        if expression.contains("tenure_store_") {
            assert!(!answer["data"]["result"].as_array().unwrap().is_empty(), "{expression}");
        }
    }
    assert_eq!(ask("sum(tenure_store_holders)")["data"]["result"][0]["value"][1], "1");
}

/// A Prometheus that reads an exporter.
fn prometheus(folder: &Path, exporter: &str) -> Running {
    let rules = packaging().join("prometheus").canonicalize().unwrap();
    let settings = format!(
        "global: {{ scrape_interval: 200ms, evaluation_interval: 200ms }}\n\
         rule_files: ['{0}/alerts.yml', '{0}/recording.yml']\n\
         scrape_configs: [{{ job_name: tenure, static_configs: [{{ targets: ['{exporter}'] }}] }}]\n",
        rules.display()
    );
    let file = folder.join("prometheus.yml");
    std::fs::write(&file, settings).unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let mut command = Command::new(tools().join("prometheus"));
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
    command.arg(format!("--web.listen-address={address}"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let running = Running { child: command.spawn().unwrap(), address };
    until("Prometheus listens", || TcpStream::connect(&running.address).is_ok());
    until("it is ready", || get(&running.address, "/-/ready").0.contains("200"));
    running
}
