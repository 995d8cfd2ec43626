//! A connection with one request at a time, on which the server may also send messages.

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
    /// Connects. A reply that takes more than `limit` bytes of memory ends the connection.
    pub(super) async fn open(endpoint: &Endpoint, limit: usize) -> Result<Self, StoreError> {
        Ok(Self { stream: stream::open(endpoint).await?, inbox: Inbox::new(limit) })
    }

    pub(super) async fn request(&mut self, command: &Command) -> Result<Reply, StoreError> {
        self.write(command).await?;
        self.next().await
    }

    pub(super) async fn write(&self, command: &Command) -> Result<(), StoreError> {
        write(&self.stream, command).await
    }

    /// The next reply or message. Cancel safe: none is lost.
    pub(super) async fn next(&mut self) -> Result<Reply, StoreError> {
        self.inbox.next(&self.stream).await.map_err(StoreError::refused)
    }
}

pub(super) async fn write(stream: &Stream, command: &Command) -> Result<(), StoreError> {
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
