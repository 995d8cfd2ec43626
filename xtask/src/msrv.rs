//! Checks that each crate of the workspace builds with the oldest Rust that it promises (its `rust-version`).
//!
//! Every dependency must promise the same, which the metadata says without building anything; those that
//! only tests and benchmarks use may need a newer one, because users do not build them. If that toolchain is
//! installed, the libraries and commands are also checked with it; otherwise clippy's `incompatible_msrv`
//! lint is the check for our own code.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::sh::{self, Failure, Outcome};

/// A Rust version; a missing patch number is zero, as in `rust-version`.
type Version = (u32, u32, u32);

/// A crate of the workspace.
struct Member<'a> {
    id: &'a Value,
    name: &'a str,
    promised: Version,
}

pub(crate) fn check() -> Outcome {
    // With all features: users may turn any of them on.
    let metadata = ["metadata", "--format-version", "1", "--all-features", "--locked"];
    let metadata: Value =
        serde_json::from_str(&sh::output(sh::cargo(&metadata))?).map_err(|error| {
            Failure::new(format!("`cargo metadata` printed no proper JSON: {error}."))
        })?;
    let members = members(&metadata)?;
    let newer = newer_packages(&metadata, &members);
    if !newer.is_empty() {
        let list = newer.into_iter().collect::<Vec<_>>().join("\n  ");
        return Err(Failure::new(format!(
            "these dependencies need a newer Rust than is promised:\n  {list}\n\
             Choose older versions of them with `cargo update --precise`, or raise `rust-version`."
        )));
    }
    let promised: BTreeSet<_> = members.iter().map(|member| member.promised).collect();
    promised.into_iter().try_for_each(|promised| build(promised, &members))
}

/// Checks the libraries and commands that promise this toolchain with it, if rustup has it.
fn build(promised: Version, members: &[Member<'_>]) -> Outcome {
    let toolchains = sh::rustup_output(&["toolchain", "list"])?;
    let Some(toolchain) = toolchain(&toolchains, promised) else {
        sh::say(format!(
            "Rust {} is not installed; only clippy's incompatible_msrv lint checks for it",
            spell(promised)
        ));
        return Ok(());
    };
    let mut check = sh::rustup(&["run", toolchain, "cargo", "check"]);
    check.args(["--all-features", "--locked"]).current_dir(sh::root());
    for member in members.iter().filter(|member| member.promised == promised) {
        check.args(["-p", member.name]);
    }
    sh::run(check)
}

fn members(metadata: &Value) -> Outcome<Vec<Member<'_>>> {
    let ids = list(metadata, "workspace_members");
    let own = list(metadata, "packages").iter().filter(|package| ids.contains(&package["id"]));
    let members: Option<Vec<_>> = own.map(Member::of).collect();
    members.filter(|members| !members.is_empty()).ok_or_else(|| {
        Failure::new("a package of the workspace has no `rust-version`; inherit it.")
    })
}

impl<'a> Member<'a> {
    fn of(package: &'a Value) -> Option<Self> {
        let (id, name) = (&package["id"], package["name"].as_str()?);
        Some(Self { id, name, promised: rust_version(package)? })
    }
}

/// The dependencies that need a newer Rust than the crate that they are built for promises.
fn newer_packages(metadata: &Value, members: &[Member<'_>]) -> BTreeSet<String> {
    members.iter().flat_map(|member| newer_packages_of(metadata, member)).collect()
}

fn newer_packages_of(metadata: &Value, member: &Member<'_>) -> Vec<String> {
    let built = built_with(metadata, member.id);
    let packages = list(metadata, "packages").iter();
    packages
        .filter(|package| built.contains(&&package["id"]))
        .filter_map(|package| {
            let needed = rust_version(package).filter(|needed| *needed > member.promised)?;
            let (name, version) = (package["name"].as_str()?, package["version"].as_str()?);
            let (needed, promised) = (spell(needed), spell(member.promised));
            let of = member.name;
            Some(format!("{name} {version} needs Rust {needed}, and {of} promises {promised}"))
        })
        .collect()
}

/// The package and its dependencies, except those for tests and benchmarks only.
fn built_with<'a>(metadata: &'a Value, id: &'a Value) -> Vec<&'a Value> {
    let nodes = list(&metadata["resolve"], "nodes");
    let mut built = vec![id];
    let mut next = 0;
    while let Some(id) = built.get(next).copied() {
        next += 1;
        let node = nodes.iter().find(|node| node["id"] == *id).unwrap_or(&Value::Null);
        for needed in list(node, "deps").iter().filter(|needed| is_for_users(needed)) {
            if !built.contains(&&needed["pkg"]) {
                built.push(&needed["pkg"]);
            }
        }
    }
    built
}

/// Whether a dependency is of any kind but `dev`.
fn is_for_users(dependency: &Value) -> bool {
    list(dependency, "dep_kinds").iter().any(|kind| kind["kind"] != "dev")
}

/// The name of the installed toolchain of that version, in the form `rustup run` takes.
fn toolchain(listed: &str, wanted: Version) -> Option<&str> {
    let names = listed.lines().filter_map(|line| line.split_whitespace().next());
    names.into_iter().find(|name| {
        let number = name.split('-').next().unwrap_or(name);
        parse(number).is_some_and(|version| (version.0, version.1) == (wanted.0, wanted.1))
    })
}

fn list<'a>(metadata: &'a Value, key: &str) -> &'a [Value] {
    metadata[key].as_array().map_or(&[], Vec::as_slice)
}

fn rust_version(package: &Value) -> Option<Version> {
    parse(package["rust_version"].as_str()?)
}

fn parse(text: &str) -> Option<Version> {
    let mut numbers = text.split('.').map(|number| number.parse::<u32>().ok());
    let (major, minor) = (numbers.next()??, numbers.next()??);
    let patch = numbers.next().unwrap_or(Some(0))?;
    Some((major, minor, patch))
}

fn spell((major, minor, patch): Version) -> String {
    format!("{major}.{minor}.{patch}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn needed(id: &str, kinds: &[Value]) -> Value {
        let kinds: Vec<_> = kinds.iter().map(|kind| json!({ "kind": kind })).collect();
        json!({ "pkg": id, "dep_kinds": kinds })
    }

    fn metadata() -> Value {
        json!({
            "workspace_members": ["a", "f"],
            "packages": [
                { "id": "a", "name": "tenure", "version": "0.1.0", "rust_version": "1.88" },
                { "id": "f", "name": "newer", "version": "0.1.0", "rust_version": "1.90" },
                { "id": "b", "name": "old", "version": "1.0.0", "rust_version": "1.63.0" },
                { "id": "c", "name": "silent", "version": "2.0.0", "rust_version": null },
                { "id": "d", "name": "modern", "version": "3.1.0", "rust_version": "1.90" },
                { "id": "e", "name": "of tests", "version": "1.0.0", "rust_version": "1.91" },
            ],
            "resolve": { "nodes": [
                { "id": "a", "deps": [needed("b", &[Value::Null]), needed("e", &[json!("dev")])] },
                { "id": "b", "deps": [needed("c", &[json!("build")])] },
                { "id": "c", "deps": [needed("d", &[json!("dev"), Value::Null])] },
                { "id": "e", "deps": [] },
                { "id": "f", "deps": [needed("d", &[Value::Null])] },
            ] },
        })
    }

    #[test]
    fn each_crate_has_a_promise_of_its_own() {
        let metadata = metadata();
        let promised: Vec<_> =
            members(&metadata).unwrap().iter().map(|member| member.promised).collect();
        assert_eq!(promised, [(1, 88, 0), (1, 90, 0)]);
        assert!(members(&json!({})).is_err());
    }

    #[test]
    fn only_a_newer_dependency_that_users_build_is_reported() {
        let mut metadata = metadata();
        let newer = newer_packages(&metadata, &members(&metadata).unwrap());
        let expected = "modern 3.1.0 needs Rust 1.90.0, and tenure promises 1.88.0";
        assert_eq!(newer.into_iter().collect::<Vec<_>>(), [expected]);
        metadata["packages"][0]["rust_version"] = json!("1.90");
        assert!(newer_packages(&metadata, &members(&metadata).unwrap()).is_empty());
    }

    #[test]
    fn the_toolchain_is_found_by_its_number() {
        let listed =
            "stable-x86_64-unknown-linux-gnu (active, default)\n1.88.0-x86_64-unknown-linux-gnu\n";
        assert_eq!(toolchain(listed, (1, 88, 0)), Some("1.88.0-x86_64-unknown-linux-gnu"));
        assert_eq!(toolchain(listed, (1, 8, 0)), None);
        assert_eq!(toolchain("no installed toolchains\n", (1, 88, 0)), None);
    }
}
