//! What the results depend on besides the peers: the machine, and the versions of what runs on it.

use std::fs;
use std::process::Command;

/// Names and values.
pub(crate) type Facts = Vec<(&'static str, String)>;

pub(crate) fn facts(server: &str) -> Facts {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut facts = vec![
        ("processor", format!("{}, {cores} cores", processor())),
        ("system", format!("{} {}", std::env::consts::OS, kernel())),
        ("server", server.to_owned()),
    ];
    let tools = [
        ("Rust", "rustc", "--version"),
        ("Java", "java", "-version"),
        ("Go", "go", "version"),
        ("Node.js", "node", "--version"),
        ("Python", "python3", "--version"),
    ];
    for (name, program, asks) in tools {
        facts.extend(version(program, asks).map(|version| (name, version)));
    }
    facts.push(("load before", load()));
    facts
}

fn processor() -> String {
    let all = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let models = all.lines().filter_map(|line| line.strip_prefix("model name"));
    let model = models.filter_map(|line| line.split_once(':')).map(|(_, name)| name.trim()).next();
    model.unwrap_or(std::env::consts::ARCH).to_owned()
}

fn kernel() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // The number only: what follows it names the machine's maker.
    let number = release.trim().split(['-', '+']).next().unwrap_or_default();
    number.to_owned()
}

/// A busy machine measures other things.
fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}

/// The first number with dots of what the program prints about itself.
fn version(program: &str, asks: &str) -> Option<String> {
    let output = Command::new(program).arg(asks).output().ok()?;
    number_in(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()))
}

fn number_in(text: &str) -> Option<String> {
    let words = text.split(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let mut numbers = words.filter(|word| word.contains('.') && word.len() > 2);
    numbers.next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_tools_print() {
        let found = |text| number_in(text).unwrap();
        assert_eq!(found("rustc 1.95.0 (abc 2026-01-01)"), "1.95.0");
        assert_eq!(found("openjdk version \"17.0.15\" 2025-04-15"), "17.0.15");
        assert_eq!(found("go version go1.26.8 linux/amd64"), "1.26.8");
        assert_eq!(found("v20.20.2"), "20.20.2");
        assert_eq!(number_in("none"), None);
    }
}
