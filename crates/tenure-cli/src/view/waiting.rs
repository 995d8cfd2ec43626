//! The line that is shown at a terminal while a lock is waited for.

use std::future::pending;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tenure::{Error, Lock, LockInfo, WaiterInfo};

use crate::args::time::pause;
use crate::exec::terminal;
use crate::view::format::{holders, plain};
use crate::view::output::{is_seen, say};

/// Nobody wants to read about a wait that is over at once.
const FIRST: Duration = Duration::from_millis(300);

/// How often to look.
const EVERY: Duration = Duration::from_secs(1);

/// Tells who is ahead, for as long as it is polled, and that the store is away. Not at a terminal: once,
/// if asked for.
pub(crate) async fn tell(lock: &Lock, is_me: impl Fn(&WaiterInfo) -> bool, is_verbose: bool) -> ! {
    let is_terminal = is_seen();
    if !is_terminal && !is_verbose {
        pending::<()>().await;
    }
    pause(FIRST).await;
    let (mut line, mut last) = (None, None);
    loop {
        // Nobody looks at a job in the background; its line would be written over what others write.
        if terminal::is_behind(std::io::stderr()) {
            line = None;
        } else {
            let seen = lock.inspect().await;
            let sentence = seen.as_ref().map_or_else(trouble, |info| sentence(info, &is_me));
            let line = line.get_or_insert_with(Line::new);
            // Where a line cannot be written anew (TERM is dumb), there is one, and no more: until the
            // store goes, or comes back.
            if !line.0.is_hidden() && is_terminal {
                line.0.set_message(sentence);
            } else if last.replace(seen.is_ok()) != Some(seen.is_ok()) {
                say(sentence);
            }
        }
        pause(EVERY).await;
    }
}

fn trouble(error: &Error) -> String {
    plain(format_args!("waiting for the store: {error}"))
}

fn sentence(info: &LockInfo, is_me: &impl Fn(&WaiterInfo) -> bool) -> String {
    let name = plain(info.name.as_str());
    let holders = holders(info).unwrap_or_else(|| "nobody yet".to_owned());
    let ahead = info.waiters.iter().position(is_me);
    let ahead = match ahead {
        Some(0) => "next in line".to_owned(),
        Some(ahead) => format!("{ahead} ahead in line"),
        None => format!("{} in line", info.waiting),
    };
    // What changes comes first: a narrow terminal cuts the rest off.
    format!("waiting for `{name}`, {ahead}: held by {holders}")
}

/// Leaves nothing on the terminal.
struct Line(ProgressBar);

impl Line {
    fn new() -> Self {
        let line = Self(ProgressBar::new_spinner());
        // Without a template that is understood, the default is as good.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            line.0.set_style(style);
        }
        line.0.enable_steady_tick(Duration::from_millis(120));
        line
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
