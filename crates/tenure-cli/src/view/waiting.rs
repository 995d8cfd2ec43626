//! The progress line at a terminal while a command waits for its lock.

use std::future::pending;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tenure::{Error, Lock, LockInfo, WaiterInfo};

use crate::args::time::pause;
use crate::exec::terminal;
use crate::view::format::{holders, plain};
use crate::view::output::{is_terminal, say};

/// A shorter wait is not shown.
const FIRST: Duration = Duration::from_millis(300);

/// The polling interval.
const EVERY: Duration = Duration::from_secs(1);

/// Shows the position in the queue, and whether the store is unreachable, for as long as it is polled. Without a
/// terminal: once, if asked for.
pub(crate) async fn show(lock: &Lock, is_me: impl Fn(&WaiterInfo) -> bool, is_verbose: bool) -> ! {
    let is_terminal = is_terminal();
    if !is_terminal && !is_verbose {
        pending::<()>().await;
    }
    pause(FIRST).await;
    let (mut line, mut last) = (None, None);
    loop {
        // A background job's line would overwrite the output of other jobs.
        if terminal::is_in_background(std::io::stderr()) {
            line = None;
        } else {
            let seen = lock.inspect().await;
            let sentence = seen.as_ref().map_or_else(trouble, |info| sentence(info, &is_me));
            let line = line.get_or_insert_with(Line::new);
            // A terminal that cannot rewrite a line (TERM is dumb) gets one message, and another when the store becomes
            // unreachable or reachable.
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
    let held = holders(info).map_or("not held".to_owned(), |holders| format!("held by {holders}"));
    let ahead = info.waiters.iter().position(is_me);
    let ahead = match ahead {
        Some(0) => "next in line".to_owned(),
        Some(ahead) => format!("{ahead} ahead in line"),
        None => format!("{} in line", info.waiting),
    };
    // The changing part comes first: a narrow terminal cuts the rest off.
    format!("waiting for `{name}`, {ahead}: {held}")
}

/// Clears the line when dropped.
struct Line(ProgressBar);

impl Line {
    fn new() -> Self {
        let line = Self(ProgressBar::new_spinner());
        // Without a valid template, the default is used.
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
