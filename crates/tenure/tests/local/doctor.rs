//! The checkup of a local store.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tenure::Tenure;
use tenure::blocking::block_on;
use tenure::engine::{Finding, Severity};

use super::other::start;
use super::{disk, namespace};
use crate::{connect, store};

fn finding(tenure: &Tenure, topic: &str) -> Finding {
    let findings = block_on(tenure.checkup()).unwrap();
    let found = findings.iter().find(|finding| finding.topic == topic);
    found.unwrap_or_else(|| panic!("no {topic} in {findings:?}")).clone()
}

#[test]
fn a_healthy_store_has_no_problems() {
    let (_around, folder) = store();
    let tenure = connect(&folder);
    let mut other = start(&folder, "hold");
    other.expect("holds");
    let findings = block_on(tenure.checkup()).unwrap();
    let topics: Vec<_> = findings.iter().map(|finding| finding.topic).collect();
    assert_eq!(
        topics,
        ["folder", "file system", "space", "store", "records", "clients", "latency"]
    );
    for finding in &findings {
        println!("{finding:?}");
        assert!(finding.severity < Severity::Problem, "{finding:?}");
    }
    assert_eq!(finding(&tenure, "clients").found, "2, with this one");
    other.kill();
    assert_eq!(finding(&tenure, "clients").found, "1, with this one");
}

#[test]
fn a_folder_that_was_opened_or_removed_is_a_problem() {
    let (_around, folder) = store();
    let tenure = connect(&folder);
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    let open = finding(&tenure, "folder");
    assert_eq!(open.severity, Severity::Problem);
    assert!(open.found.contains("mode 755"), "{open:?}");
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    assert_eq!(finding(&tenure, "folder").severity, Severity::Fine);
    fs::remove_dir_all(&folder).unwrap();
    let removed = finding(&tenure, "folder");
    assert_eq!(removed.severity, Severity::Problem);
    assert!(removed.found.contains("removed or moved"), "{removed:?}");
}

#[test]
fn a_full_disk_is_a_problem() {
    namespace::run(&namespace::small_disk("size=20m"), "examine a full disk");
}

pub(crate) fn examine_a_full_disk(folder: &Path) {
    let tenure = connect(folder);
    assert_eq!(finding(&tenure, "file system").found, "tmpfs");
    for (pages, severity) in
        [(4500, Severity::Fine), (1000, Severity::Warning), (0, Severity::Problem)]
    {
        disk::fill(folder, pages);
        assert_eq!(finding(&tenure, "space").severity, severity, "{pages} pages");
    }
}
