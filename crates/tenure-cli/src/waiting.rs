//! The line that is shown at a terminal while a lock is waited for.

use std::future::pending;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tenure::{About, Lock, LockInfo};

use crate::terminal;
use crate::time::pause;
use crate::voice::say;
use crate::words::{holders, plain};

/// Nobody wants to read about a wait that is over at once.
const FIRST: Duration = Duration::from_millis(300);

/// How often to look.
const EVERY: Duration = Duration::from_secs(1);

/// Tells who is ahead, for as long as it is polled. Not at a terminal: once, if asked for.
pub(crate) async fn tell(lock: &Lock, is_verbose: bool) -> ! {
    let is_terminal = std::io::stderr().is_terminal();
    if !is_terminal && !is_verbose {
        pending::<()>().await;
    }
    pause(FIRST).await;
    let mut line = None;
    loop {
        // Nobody looks at a job in the background; its line would be written over what others write.
        if terminal::is_behind(std::io::stderr()) {
            line = None;
        } else if let Ok(info) = lock.inspect().await {
            let line = line.get_or_insert_with(Line::new);
            // Where a line cannot be written anew (TERM is dumb), there is one, and no more.
            if line.0.is_hidden() || !is_terminal {
                say(sentence(&info));
                pending::<()>().await;
            }
            line.0.set_message(sentence(&info));
        }
        pause(EVERY).await;
    }
}

fn sentence(info: &LockInfo) -> String {
    let name = plain(info.name.as_str());
    let holders = holders(info).unwrap_or_else(|| "nobody yet".to_owned());
    let me = About::this_process();
    let is_me = |about: &About| (&about.host, about.pid) == (&me.host, me.pid);
    let ahead = info.waiters.iter().position(|waiter| is_me(&waiter.about));
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
