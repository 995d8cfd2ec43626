//! What happened in a run: the sections of the clients, and the faults. Each line is written when it is complete, so that
//! a killed process leaves what it knew, and `tenure-torture check` can judge it again.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::str::FromStr;

use crate::time::Micros;

/// One wait for a lock, and what followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    /// The process, which is another one after a kill.
    pub(crate) process: u32,
    pub(crate) name: u32,
    /// When it asked, and for how long it would wait.
    pub(crate) asked: Micros,
    pub(crate) within: Micros,
    /// When the acquire returned.
    pub(crate) returned: Micros,
    pub(crate) hold: Option<Hold>,
}

/// A lock that a client got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) fence: u64,
    /// The last moment at which the client knew that it held the lock: its clock was read first, and the guard asked then.
    pub(crate) held: Micros,
    /// What the fenced register did with its write; nothing if the process was stopped by then.
    pub(crate) write: Option<Written>,
}

/// What the fenced register did with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Accepted,
    /// A later fence had been seen.
    Refused,
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Incident {
    pub(crate) from: Micros,
    pub(crate) until: Micros,
    pub(crate) fault: String,
    /// The process that was stopped or killed, if one was.
    pub(crate) process: Option<u32>,
    /// After it, two clients may hold one lock on this topology: the page of guarantees says so.
    pub(crate) excuses: bool,
}

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    pub(crate) sections: Vec<Section>,
    pub(crate) incidents: Vec<Incident>,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, name, asked, within, returned, hold } = self;
        write!(f, "section {process} {name} {asked} {within} {returned}")?;
        let Some(Hold { fence, held, write }) = hold else { return Ok(()) };
        let write = match write {
            Some(Written::Accepted) => "accepted",
            Some(Written::Refused) => "refused",
            None => "none",
        };
        write!(f, " {fence} {held} {write}")
    }
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, until, fault, process, excuses } = self;
        write!(f, "fault {from} {until} {fault} {} {excuses}", process.unwrap_or(0))
    }
}

/// The fields of a line, in order.
struct Fields<'a>(std::str::SplitAsciiWhitespace<'a>);

impl Fields<'_> {
    fn next<T: FromStr>(&mut self) -> Result<T, String> {
        self.optional()?.ok_or_else(|| "a field is missing".to_owned())
    }

    fn optional<T: FromStr>(&mut self) -> Result<Option<T>, String> {
        let parse = |word: &str| word.parse().map_err(|_| format!("`{word}` is no such field"));
        self.0.next().map(parse).transpose()
    }
}

impl Section {
    fn parse(fields: &mut Fields<'_>) -> Result<Self, String> {
        let (process, name) = (fields.next()?, fields.next()?);
        let (asked, within, returned) = (fields.next()?, fields.next()?, fields.next()?);
        let hold = match fields.optional()? {
            Some(fence) => {
                let held = fields.next()?;
                let write = match fields.next::<String>()?.as_str() {
                    "accepted" => Some(Written::Accepted),
                    "refused" => Some(Written::Refused),
                    _ => None,
                };
                Some(Hold { fence, held, write })
            }
            None => None,
        };
        Ok(Self { process, name, asked, within, returned, hold })
    }
}

impl Incident {
    fn parse(fields: &mut Fields<'_>) -> Result<Self, String> {
        let (from, until, fault) = (fields.next()?, fields.next()?, fields.next()?);
        let process = Some(fields.next()?).filter(|process| *process != 0);
        Ok(Self { from, until, fault, process, excuses: fields.next()? })
    }
}

impl History {
    /// Adds what a text of lines says. The last line may be cut off: its process was killed.
    pub(crate) fn add(&mut self, text: &str) -> Result<(), String> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            let mut fields = Fields(line.split_ascii_whitespace());
            let added = match fields.next::<String>()?.as_str() {
                "section" => Section::parse(&mut fields).map(|it| self.sections.push(it)),
                "fault" => Incident::parse(&mut fields).map(|it| self.incidents.push(it)),
                word => Err(format!("`{word}` is no kind of line")),
            };
            added.map_err(|why| format!("{why}: {line}"))?;
        }
        Ok(())
    }

    /// Reads all files of a folder.
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        let mut history = Self::default();
        for file in fs::read_dir(folder)? {
            let path = file?.path();
            if path.extension().is_some_and(|it| it == "history") {
                let wrong = |why| io::Error::other(format!("{}: {why}", path.display()));
                history.add(&fs::read_to_string(&path)?).map_err(wrong)?;
            }
        }
        history.sections.sort_by_key(|section| (section.name, section.returned));
        history.incidents.sort_by_key(|incident| incident.from);
        Ok(history)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        let hold = |write| Some(Hold { fence: 7, held: 40, write });
        let section =
            |hold| Section { process: 3, name: 1, asked: 10, within: 90, returned: 30, hold };
        let sections = vec![
            section(None),
            section(hold(None)),
            section(hold(Some(Written::Accepted))),
            section(hold(Some(Written::Refused))),
        ];
        let fault = "kill-server".to_owned();
        let incident = Incident { from: 1, until: 2, fault, process: None, excuses: true };
        let stopped = Incident { process: Some(4), excuses: false, ..incident.clone() };
        let history = History { sections, incidents: vec![incident, stopped] };
        let lines = history.sections.iter().map(|it| format!("{it}\n"));
        let lines = lines.chain(history.incidents.iter().map(|it| format!("{it}\n")));
        let mut read = History::default();
        read.add(&(lines.collect::<String>() + "section 3 1 1")).expect("whole lines");
        assert_eq!(read, history, "and the line that was cut off is left out");
        assert!(History::default().add("section 1\n").is_err());
        assert!(History::default().add("sections 1\n").is_err());
    }
}
