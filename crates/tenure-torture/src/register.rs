//! The data that the lock protects: for each name one number that checks fences and one that does not. A section reads
//! both, and writes both, each one more than it has read. So an update that another one has overwritten is seen at once.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The state of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    /// The highest fence that was shown.
    fence: u64,
    fenced: u64,
    unfenced: u64,
}

/// What has happened to all names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    /// Writes that came too late, and were refused by their fence.
    pub(crate) refused: u64,
    /// Updates that were overwritten: of the number with fences, and of the one without.
    pub(crate) lost_fenced: u64,
    pub(crate) lost_unfenced: u64,
}

#[derive(Default)]
struct State {
    cells: HashMap<u32, Cell>,
    tally: Tally,
}

impl State {
    /// Reads for a holder: its fence is registered first, so that an older holder cannot write any more.
    fn read(&mut self, name: u32, fence: u64) -> Option<(u64, u64)> {
        self.tally.reads += 1;
        let cell = self.cells.entry(name).or_default();
        if fence < cell.fence {
            return None;
        }
        cell.fence = fence;
        Some((cell.fenced, cell.unfenced))
    }

    /// Writes for a holder. False if its fence is too old; the number without a fence is written anyway.
    fn write(&mut self, name: u32, fence: u64, fenced: u64, unfenced: u64) -> bool {
        let Self { cells, tally } = self;
        tally.writes += 1;
        let cell = cells.entry(name).or_default();
        tally.lost_unfenced += u64::from(unfenced != cell.unfenced + 1);
        cell.unfenced = unfenced;
        if fence < cell.fence {
            tally.refused += 1;
            return false;
        }
        tally.lost_fenced += u64::from(fenced != cell.fenced + 1);
        (cell.fence, cell.fenced) = (fence, fenced);
        true
    }
}

/// The registers, served at a socket in the file system until the process ends.
#[derive(Clone)]
pub(crate) struct Registers {
    state: Arc<Mutex<State>>,
    path: PathBuf,
}

impl Registers {
    pub(crate) fn serve(folder: &Path) -> io::Result<Self> {
        let path = folder.join("registers");
        let listener = UnixListener::bind(&path)?;
        let registers = Self { state: Arc::default(), path };
        let serving = registers.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let registers = serving.clone();
                // A client that is killed ends its connection.
                std::thread::spawn(move || registers.answer(&stream));
            }
        });
        Ok(registers)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn tally(&self) -> Tally {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).tally
    }

    fn answer(&self, stream: &UnixStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        let (mut line, mut writer) = (String::new(), stream);
        while reader.read_line(&mut line)? > 0 {
            let answer = self.perform(&line);
            writer.write_all(format!("{answer}\n").as_bytes())?;
            line.clear();
        }
        Ok(())
    }

    /// `name fence` reads, `name fence fenced unfenced` writes.
    fn perform(&self, line: &str) -> String {
        let fields: Vec<u64> = line.split_ascii_whitespace().flat_map(str::parse).collect();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let name = |name: u64| u32::try_from(name).unwrap_or(u32::MAX);
        match fields[..] {
            [of, fence] => match state.read(name(of), fence) {
                Some((fenced, unfenced)) => format!("{fenced} {unfenced}"),
                None => "refused".to_owned(),
            },
            [of, fence, fenced, unfenced] => {
                let is_accepted = state.write(name(of), fence, fenced, unfenced);
                if is_accepted { "accepted".to_owned() } else { "refused".to_owned() }
            }
            _ => "wrong".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_write_is_refused_by_its_fence_and_overwrites_without_one() {
        let mut state = State::default();
        assert_eq!(state.read(1, 10), Some((0, 0)));
        assert_eq!(state.read(1, 20), Some((0, 0)));
        assert!(state.write(1, 20, 1, 1));
        assert!(!state.write(1, 10, 1, 1), "late");
        assert_eq!(state.read(1, 15), None);
        let Tally { refused, lost_fenced, lost_unfenced, .. } = state.tally;
        assert_eq!((refused, lost_fenced, lost_unfenced), (1, 0, 1));
    }

    /// A fence that does not grow lets both write, and that is noticed.
    #[test]
    fn an_overwritten_update_is_counted() {
        let mut state = State::default();
        assert_eq!(state.read(1, 10), Some((0, 0)));
        assert_eq!(state.read(1, 10), Some((0, 0)));
        assert!(state.write(1, 10, 1, 1) && state.write(1, 10, 1, 1));
        assert_eq!(state.tally.lost_fenced, 1);
    }
}
