//! The Rust and Lua files under `crates/`, and which of their lines are tests.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sh::{self, Failure, Outcome};

/// What a line can do for a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It ships, so it can uphold a promise.
    Code,
    /// It can show that a promise is kept.
    Test,
    /// Neither: the testkit, test helpers, examples, benchmarks.
    Help,
}

/// One file, with its path relative to the workspace.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// One line of a file.
pub(crate) struct Line<'a> {
    pub(crate) number: usize,
    pub(crate) text: &'a str,
    pub(crate) role: Role,
}

impl Source {
    /// Every Rust and Lua file of the crates, in the order of their paths.
    pub(crate) fn all() -> Outcome<Vec<Self>> {
        let mut found = Vec::new();
        collect(&sh::root().join("crates"), &mut found)?;
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        let role = role(&self.path);
        let tests_from = tests_from(&self.text).unwrap_or(usize::MAX);
        self.text.lines().enumerate().map(move |(index, text)| {
            let inline_test = role == Role::Code && index >= tests_from;
            Line { number: index + 1, text, role: if inline_test { Role::Test } else { role } }
        })
    }

    /// The part of the line that is a comment.
    pub(crate) fn comment<'a>(&self, line: &Line<'a>) -> Option<&'a str> {
        let mark = if self.path.extension().is_some_and(|end| end == "lua") { "--" } else { "//" };
        line.text.find(mark).map(|at| &line.text[at..])
    }
}

/// Reads a file of the workspace.
pub(crate) fn read(path: &str) -> Outcome<String> {
    let read = fs::read_to_string(sh::root().join(path));
    read.map_err(|error| Failure::new(format!("could not read {path}: {error}.")))
}

fn collect(folder: &Path, found: &mut Vec<Source>) -> Outcome {
    let unreadable = |error| Failure::new(format!("could not read {}: {error}.", folder.display()));
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|end| end == "rs" || end == "lua") {
            let text = fs::read_to_string(&path).map_err(unreadable)?;
            let path = path.strip_prefix(sh::root()).unwrap_or(&path).to_path_buf();
            found.push(Source { path, text });
        }
    }
    Ok(())
}

/// The role of a whole file, by its path: `crates/<name>/<src, tests, …>/…`.
fn role(path: &Path) -> Role {
    let inner = path.with_extension("");
    let names: Vec<_> = inner.iter().map(|name| name.to_string_lossy()).collect();
    let has = |name: &str| names.iter().skip(2).any(|part| part == name);
    if has("tests") || has("conformance") {
        return Role::Test;
    }
    let shipped = names.get(2).is_some_and(|part| part == "src");
    let helps = has("test") || has("testing") || names[1] == "tenure-testkit";
    if shipped && !helps { Role::Code } else { Role::Help }
}

/// The index of the line that opens the file's inline test module. A mere `mod tests;` does not count:
/// what follows it is code again.
fn tests_from(text: &str) -> Option<usize> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_gate = |line: &str| line.starts_with("#[cfg(") && line.contains("test");
    let opens_module = |line: &&str| line.contains("mod ") && line.ends_with('{');
    (0..lines.len()).filter(|&index| is_gate(lines[index])).find(|&index| {
        let mut after = lines[index + 1..].iter();
        after
            .find(|line| !line.starts_with("#[") && !line.starts_with("//"))
            .is_some_and(opens_module)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(path: &str, text: &str) -> Vec<Role> {
        let source = Source { path: path.into(), text: text.into() };
        source.lines().map(|line| line.role).collect()
    }

    #[test]
    fn a_files_role_follows_its_place() {
        let cases = [
            ("crates/tenure/src/lease.rs", Role::Code),
            ("crates/tenure/src/engine/redis/lua/acquire.lua", Role::Code),
            ("crates/tenure-cli/src/main.rs", Role::Code),
            ("crates/tenure/tests/redis.rs", Role::Test),
            ("crates/tenure/src/core/tests.rs", Role::Test),
            ("crates/tenure/src/core/tests/lease.rs", Role::Test),
            ("crates/tenure/src/conformance/fences.rs", Role::Test),
            ("crates/tenure/src/testing/clock.rs", Role::Help),
            ("crates/tenure/examples/cron.rs", Role::Help),
            ("crates/tenure-testkit/src/server.rs", Role::Help),
            ("crates/tenure-testkit/tests/server.rs", Role::Test),
        ];
        for (path, role) in cases {
            assert_eq!(roles(path, "x"), [role], "{path}");
        }
    }

    #[test]
    fn an_inline_test_module_is_a_test() {
        let text = "code\n#[cfg(test)]\n#[expect(dead_code)]\nmod tests {\n}";
        use Role::{Code, Test};
        assert_eq!(roles("crates/a/src/b.rs", text), [Code, Test, Test, Test, Test]);
    }

    #[test]
    fn a_test_module_in_its_own_file_leaves_the_rest_code() {
        let text = "#[cfg(test)]\nmod tests;\ncode";
        assert_eq!(roles("crates/a/src/b.rs", text), [Role::Code; 3]);
    }
}
