//! What a program prints.

use std::io::Write;

/// More sections are thinned out: the line stays short enough to be read at once.
const MOST: usize = 50_000;

/// One acquire and release, in nanoseconds of the machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    pub asked: u64,
    pub acquired: u64,
    pub releasing: u64,
    pub released: u64,
}

/// The sections of all callers.
pub(crate) struct Ended {
    at: u64,
    sections: Vec<Section>,
}

pub(crate) fn ended(at: u64, sections: Vec<Section>) -> Ended {
    Ended { at, sections }
}

/// Reports that the work can begin, and waits for the start.
pub(crate) fn ready() {
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).expect("the start");
}

impl Ended {
    pub(crate) fn print(&self, version: &str, begin: u64) {
        let (count, seconds) = (self.sections.len(), (self.at - begin) as f64 / 1e9);
        let every = count.div_ceil(MOST).max(1);
        let kept: Vec<_> = self.sections.iter().step_by(every).map(Section::json).collect();
        let kept = kept.join(",");
        let line = format!(
            "{{\"version\":\"{version}\",\"sections\":{count},\"seconds\":{seconds},\"every\":{every},\"times\":[{kept}]}}\n"
        );
        std::io::stdout().write_all(line.as_bytes()).expect("a reader");
    }
}

impl Section {
    fn json(&self) -> String {
        let Self { asked, acquired, releasing, released } = self;
        format!("[{asked},{},{},{}]", acquired - asked, releasing - acquired, released - releasing)
    }
}
