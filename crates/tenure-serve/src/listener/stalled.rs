//! A connection that fails once its peer has read too little for too long. A peer that reads a byte now and then would keep what it
//! has not read in memory for hours.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// How many bytes a second a peer must read at least while there is more to read.
const LEAST: u64 = 16 * 1024;

pub(super) struct Stalled<S> {
    stream: S,
    time: Duration,
    /// Set while there is more to write than fits.
    alarm: Option<Pin<Box<Sleep>>>,
    /// How many bytes were written since it was set.
    written: u64,
}

impl<S> Stalled<S> {
    pub(super) fn new(stream: S, time: Duration) -> Self {
        Self { stream, time, alarm: None, written: 0 }
    }

    /// The result of a write of so many bytes, or an error if too few were written for too long.
    fn judge_write(
        &mut self,
        written: Poll<io::Result<usize>>,
        wanted: usize,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = &written {
            self.written = self.written.saturating_add(*count as u64);
            let is_enough =
                self.written >= LEAST.saturating_mul(self.time.as_millis() as u64) / 1000;
            if *count == wanted || is_enough {
                self.alarm = None;
            }
        }
        self.judge(written, context)
    }

    fn judge<T>(
        &mut self,
        done: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() {
            return done;
        }
        if self.alarm.is_none() {
            self.written = 0;
        }
        let until = Instant::now() + self.time;
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(alarm(until)));
        ready!(alarm.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

#[expect(clippy::disallowed_methods, reason = "a deadline of the connection's own")]
fn alarm(until: Instant) -> Sleep {
    tokio::time::sleep_until(until)
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalled<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalled<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, data);
        self.judge_write(written, data.len(), context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, data);
        self.judge_write(written, data.iter().map(|slice| slice.len()).sum(), context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        // It is called when all is written.
        if flushed.is_ready() {
            self.alarm = None;
        }
        self.judge(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(ended, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const TIME: Duration = Duration::from_secs(30);

    /// Writes this much to a peer that reads so many bytes a second.
    async fn write_to(rate: usize, bytes: usize) -> io::Result<()> {
        let (stream, mut peer) = tokio::io::duplex(16 * 1024);
        let reading = tokio::spawn(async move {
            let mut some = vec![0; rate];
            while peer.read_exact(&mut some).await.is_ok() {
                pause(Duration::from_secs(1)).await;
            }
        });
        let mut stalled = Stalled::new(stream, TIME);
        let written = async {
            stalled.write_all(&vec![0; bytes]).await?;
            stalled.flush().await
        };
        let result = written.await;
        // What came before does not count for what comes later.
        if result.is_ok() {
            pause(2 * TIME).await;
            stalled.write_all(&vec![0; 64 * 1024]).await?;
        }
        reading.abort();
        result
    }

    #[expect(clippy::disallowed_methods, reason = "simulated time is to pass")]
    async fn pause(time: Duration) {
        tokio::time::sleep(time).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_too_little_is_ended() {
        let least = LEAST as usize;
        write_to(2 * least, 100 * least).await.unwrap();
        let error = write_to(least / 4, 100 * least).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // However slow it is, what fits into a window may be read at leisure.
        write_to(least / 4, 5 * least).await.unwrap();
    }
}
