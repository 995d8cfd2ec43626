//! Runs a command under a lock, from the command line to its exit status.
//!
//! ```text
//! hold, holder      the subcommand for scripts, and its background process, which watches a `shell`
//! run, elect        the subcommands that run a command
//!   session         what both have: arguments, signals, a connection, an orderly end
//!   job             the command: its environment, its end, the release
//!     supervision   while it runs: signals, the terminal, the lock, which may be lost
//!     child         the command's process, and its guardian's
//!       guardian    the process that outlives a killed `tenure`; `link` connects the two
//!       program     starts a program as a shell does
//!       changes     a child process stops or ends
//!     loss          why a lock was lost
//!   limits          `ulimit`s that leave too little
//!   process_tree    all processes that the command has started; `processes` reads /proc
//!   signals         signals caught for the command; `terminal` is its terminal and its shell job
//! ```

mod changes;
mod child;
pub(crate) mod elect;
pub(crate) mod guardian;
pub(crate) mod hold;
pub(crate) mod holder;
mod job;
pub(crate) mod limits;
mod link;
pub(crate) mod loss;
mod process_tree;
pub(crate) mod processes;
mod program;
pub(crate) mod run;
mod session;
mod shell;
pub(crate) mod signals;
mod supervision;
pub(crate) mod terminal;
