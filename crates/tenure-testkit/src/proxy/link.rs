//! One connection through the proxy: the client's half, the server's half, and its state.

use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::ledger::Ledger;
use crate::stream::Stream;

/// One connection. Its flags only ever become true, and only within `Hub::change`, which wakes the threads
/// that wait for them.
pub(super) struct Link {
    pub(super) client: Stream,
    /// None if it was opened into a black hole.
    pub(super) server: Option<Stream>,
    ledger: Mutex<Ledger>,
    is_dark: AtomicBool,
    is_closed: AtomicBool,
    client_left: AtomicBool,
}

impl Link {
    /// Without a server it is dark from the beginning.
    pub(super) fn new(client: Stream, server: Option<Stream>) -> Self {
        Self {
            client,
            is_dark: server.is_none().into(),
            server,
            ledger: Mutex::default(),
            is_closed: false.into(),
            client_left: false.into(),
        }
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it stays open but carries nothing any more.
    pub(super) fn is_dark(&self) -> bool {
        self.is_dark.load(SeqCst)
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(SeqCst)
    }

    /// Whether it carries anything.
    pub(super) fn carries(&self) -> bool {
        !self.is_dark() && !self.is_closed()
    }

    /// Whether the client has it open.
    pub(super) fn is_open(&self) -> bool {
        !self.is_closed() && !self.client_left.load(SeqCst)
    }

    /// Whether both halves are closed.
    pub(super) fn is_finished(&self) -> bool {
        self.is_closed() && self.client_left.load(SeqCst)
    }

    pub(super) fn go_dark(&self) {
        self.is_dark.store(true, SeqCst);
    }

    /// The client has closed its half. What it sent before is still forwarded to the server, unless the
    /// link is dark, when nothing is left to wait for.
    pub(super) fn leave(&self) {
        self.client_left.store(true, SeqCst);
        if self.is_dark() {
            self.close();
        }
    }

    /// Closes both halves, which wakes every thread that reads or writes them.
    pub(super) fn close(&self) {
        self.client.shutdown(Shutdown::Both);
        self.end();
    }

    /// Closes both halves, but lets the client finish what it is sending: a reset instead of a clean
    /// end might take replies along that the client has not read yet.
    pub(super) fn end(&self) {
        self.is_closed.store(true, SeqCst);
        self.client.shutdown(Shutdown::Write);
        if let Some(server) = &self.server {
            server.shutdown(Shutdown::Both);
        }
    }
}
