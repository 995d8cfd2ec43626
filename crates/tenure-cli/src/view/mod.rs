//! Shows: the subcommands that print locks, and how anything is printed.
//!
//! ```text
//! inspect    `ls` and `show`; `table` fits the list to the terminal
//! watch      `watch`
//! doctor     `doctor`
//! generate   `completions` and `man`; `complete` completes names
//! help       EXAMPLES, EXIT STATUS and ENVIRONMENT of `--help` and the manual pages
//! waiting    the progress line of a command that waits for its lock
//! about      how a holder is described
//! format     names, times and locks as text and as JSON; escapes foreign text
//! output     data on standard output, messages on standard error
//! ```

pub(crate) mod about;
pub(crate) mod complete;
pub(crate) mod doctor;
pub(crate) mod format;
pub(crate) mod generate;
pub(crate) mod help;
pub(crate) mod inspect;
pub(crate) mod output;
mod table;
pub(crate) mod waiting;
pub(crate) mod watch;
