//! A connection on which one question is asked at a time, and on which the server may also speak unasked.

use std::io;

use super::address::Endpoint;
use super::inbox::Inbox;
use super::resp::{Command, Reply};
use super::stream::{self, Stream};
use crate::error::StoreError;

pub(super) struct Dialogue {
    pub(super) stream: Stream,
    pub(super) inbox: Inbox,
}

impl Dialogue {
    /// Connects. A reply costs at most `limit` bytes of memory, or the connection is given up.
    pub(super) async fn open(endpoint: &Endpoint, limit: usize) -> Result<Self, StoreError> {
        Ok(Self { stream: stream::open(endpoint).await?, inbox: Inbox::new(limit) })
    }

    pub(super) async fn ask(&mut self, command: &Command) -> Result<Reply, StoreError> {
        self.send(command).await?;
        self.next().await
    }

    pub(super) async fn send(&self, command: &Command) -> Result<(), StoreError> {
        send(&self.stream, command).await
    }

    /// The next reply or message. Dropped in between, nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Reply, StoreError> {
        self.inbox.next(&self.stream).await.map_err(StoreError::refused)
    }
}

pub(super) async fn send(stream: &Stream, command: &Command) -> Result<(), StoreError> {
    let mut bytes = Vec::new();
    command.write(&mut bytes);
    while !bytes.is_empty() {
        match stream.try_write(&bytes) {
            Ok(written) => drop(bytes.drain(..written)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let writable = stream.writable().await;
                writable.map_err(|error| StoreError::refused(error.to_string()))?;
            }
            Err(error) => return Err(StoreError::refused(error.to_string())),
        }
    }
    Ok(())
}
