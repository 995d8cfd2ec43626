//! A command that a client sent.

use std::io;
use std::sync::Arc;

use crate::resp::Reply;
use crate::resp::decode::malformed;

/// A label must fit a line.
const LABEL_LENGTH: usize = 60;

/// A command that a client sent. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    name: Arc<str>,
    args: Arc<[Vec<u8>]>,
}

impl Command {
    /// Its first word, in capitals: `SET`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its other words.
    #[must_use]
    pub fn args(&self) -> &[Vec<u8>] {
        &self.args
    }

    /// Whether one of its other words is this one: a key, for example.
    #[must_use]
    pub fn has(&self, word: impl AsRef<[u8]>) -> bool {
        self.args.iter().any(|arg| arg == word.as_ref())
    }

    /// The script that it runs: the digest of an `EVALSHA`, the text of an `EVAL`, the name of a
    /// function.
    #[must_use]
    pub fn script(&self) -> Option<&[u8]> {
        let runs_a_script = matches!(
            self.name(),
            "EVALSHA" | "EVALSHA_RO" | "EVAL" | "EVAL_RO" | "FCALL" | "FCALL_RO"
        );
        self.args.first().filter(|_| runs_a_script).map(Vec::as_slice)
    }

    /// Its name, and the script that it runs (of a text, the first line): `EVALSHA 1b93…`.
    #[must_use]
    pub fn label(&self) -> String {
        let Some(script) = self.script() else {
            return self.name().to_owned();
        };
        let script = String::from_utf8_lossy(script);
        let line = script.trim_start().lines().next().unwrap_or_default();
        format!("{} {}", self.name, line.chars().take(LABEL_LENGTH).collect::<String>())
    }

    /// Reads a request as a command.
    pub(super) fn parse(request: &Reply) -> io::Result<Self> {
        let words: Option<Vec<_>> = match request {
            Reply::Array(Some(words)) => words.iter().map(Reply::bytes).collect(),
            _ => None,
        };
        let words = words.ok_or_else(|| malformed("a request is an array of strings"))?;
        let (name, args) =
            words.split_first().ok_or_else(|| malformed("a request without a command"))?;
        let command = Self {
            name: String::from_utf8_lossy(name).to_ascii_uppercase().into(),
            args: args.iter().map(|arg| arg.to_vec()).collect(),
        };
        if command.has_no_paired_reply() {
            let name = &command.name;
            return Err(malformed(&format!("replies cannot be paired after {name}")));
        }
        Ok(command)
    }

    /// After these, replies could no longer be matched by their order: refuse instead of guessing.
    fn has_no_paired_reply(&self) -> bool {
        let subcommand = self.args.first().map(|arg| arg.to_ascii_uppercase());
        match self.name() {
            "MONITOR" | "SYNC" | "PSYNC" => true,
            "CLIENT" => subcommand.as_deref() == Some(b"REPLY"),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::decode::Message;

    fn parsed(mut bytes: &[u8]) -> io::Result<Command> {
        Command::parse(&Message::read(&mut bytes)?.expect("a whole message").value)
    }

    fn command(words: &[&str]) -> io::Result<Command> {
        let mut bytes = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
        parsed(bytes.as_bytes())
    }

    #[test]
    fn a_name_is_in_capitals_and_no_argument() {
        let set = command(&["set", "Key", "value"]).unwrap();
        assert_eq!((set.name(), set.args().len()), ("SET", 2));
        assert!(set.has("Key") && !set.has("key") && !set.has("set"));
    }

    #[test]
    fn a_label_names_the_script() {
        assert_eq!(command(&["get", "key"]).unwrap().label(), "GET");
        assert_eq!(command(&["evalsha", "1b93", "0"]).unwrap().label(), "EVALSHA 1b93");
        let text = command(&["EVAL", "-- Release.\nreturn 1", "0"]).unwrap();
        assert_eq!(text.label(), "EVAL -- Release.");
    }

    #[test]
    fn what_is_no_command_or_would_break_the_pairing_is_refused() {
        assert!(command(&[]).is_err());
        assert!(command(&["MONITOR"]).is_err());
        assert!(command(&["client", "reply", "off"]).is_err());
        assert!(parsed(b"*1\r\n*0\r\n").is_err());
        assert!(parsed(b"+OK\r\n").is_err());
    }
}
