//! Which thread reads a connection.
//!
//! - A thread that waits in `blocking` for a reply or a wake-up reads for all callers until it has its own, unless
//!   another thread does. The socket wakes it, which saves a wake-up by another thread.
//! - A task on the callers' runtime, if the client was configured so: the tasks that it wakes run on the same
//!   threads.
//! - Otherwise, the I/O thread. On Windows always: its sockets wake no other thread.
//!
//! Replies are read and delivered under one mutex, so it does not matter for correctness which thread the socket
//! wakes, only for latency. The I/O thread is woken while the socket is *watched*. While a reply is awaited, some
//! thread is woken: a caller that awaits a reply and does not read has the socket watched, unless another thread or
//! task reads; a thread that has its own reply has it watched for the remaining waiters. While none is awaited, the
//! socket is watched after [`CHECK_EVERY`] at the latest, so that a lost connection is noticed; and also when a reply
//! is awaited for longer, because the thread or task that should read may be stopped or busy.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::inbox::Inbox;
use super::resp::Reply;
use super::socket::Receiver;
use super::stream::Stream;
use crate::parking::{self, Readable, Waiting};
use crate::sync::lock;

/// How often to check for overdue replies.
pub(super) const CHECK_EVERY: Duration = Duration::from_millis(200);

/// A connection, and the replies that have arrived on it.
pub(super) struct Reader {
    pub(super) stream: Stream,
    /// The thread that holds it reads.
    inbox: Mutex<Inbox>,
    woken: Mutex<Woken>,
    /// Why the connection is lost, if another thread than the I/O thread has noticed it.
    loss: Mutex<Option<Loss>>,
    lost: Notify,
    ended: Notify,
    is_over: AtomicBool,
}

/// What the socket wakes when it becomes readable.
struct Woken {
    /// A thread that waits for its own reply.
    is_thread: bool,
    /// A task on the callers' runtime.
    is_task: bool,
    /// The I/O thread: the socket is watched.
    is_io: bool,
}

/// Why a connection ended.
pub(super) struct Loss {
    pub(super) why: String,
    /// The server has reported that it is not the master any more.
    pub(super) is_of_replica: bool,
}

impl Loss {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_of_replica: false }
    }
}

/// A connection that other threads than the I/O thread may read.
pub(super) trait Received: Send + Sync + 'static {
    fn reader(&self) -> &Reader;

    /// Delivers a reply; called in the order of arrival.
    fn deliver(&self, reply: Reply) -> Result<(), Loss>;

    /// Whether a caller waits for something to arrive.
    fn is_awaited(&self) -> bool;
}

impl Reader {
    /// The socket is watched at first.
    pub(super) fn new(stream: Stream, inbox: Inbox) -> Self {
        Self {
            stream,
            inbox: Mutex::new(inbox),
            woken: Mutex::new(Woken { is_thread: false, is_task: false, is_io: true }),
            loss: Mutex::default(),
            lost: Notify::new(),
            ended: Notify::new(),
            is_over: AtomicBool::new(false),
        }
    }

    /// The connection is over: ends the task and the thread that read.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.ended.notify_one();
    }

    /// Called every [`CHECK_EVERY`]: has the socket watched if no other thread or task reads, or is late.
    pub(super) fn check(&self, is_late: bool) {
        let mut woken = lock(&self.woken);
        if is_late || !(woken.is_thread || woken.is_task) {
            self.watch(&mut woken, true);
        }
    }

    fn watch(&self, woken: &mut Woken, is_watched: bool) {
        if woken.is_io != is_watched {
            woken.is_io = is_watched;
            self.stream.watch(is_watched);
        }
    }

    /// Notifies the I/O thread, which ends the connection.
    pub(super) fn lose(&self, loss: Loss) {
        *lock(&self.loss) = Some(loss);
        self.lost.notify_one();
    }
}

/// Reads on the I/O thread until the connection is lost; returns why.
pub(super) async fn receive(connection: &impl Received) -> Loss {
    let reader = connection.reader();
    loop {
        match read_some(connection) {
            Err(loss) => return loss,
            // All connections of a client share the I/O thread: the others get their turn.
            Ok(false) => tokio::task::yield_now().await,
            Ok(true) => tokio::select! {
                readable = reader.stream.readable() => {
                    if let Err(error) = readable {
                        return Loss::new(format!("the connection was lost: {error}"));
                    }
                }
                () = reader.lost.notified() => {
                    let loss = lock(&reader.loss).take();
                    return loss.unwrap_or_else(|| Loss::new("the connection was lost"));
                }
            },
        }
    }
}

/// Spawns a task on the callers' runtime that reads.
pub(super) fn read_on(connection: &Arc<impl Received>, runtime: &Handle) -> io::Result<()> {
    let reader = connection.reader();
    let receiver = reader.stream.receiver_on(runtime)?;
    let mut woken = lock(&reader.woken);
    woken.is_task = true;
    reader.watch(&mut woken, false);
    drop(woken);
    let task = Task(connection.clone());
    runtime.spawn(async move { task.read(&receiver).await });
    Ok(())
}

/// To be called by a caller that waits for something to arrive: this thread reads when it parks; if it does not park,
/// another thread or task reads.
pub(super) fn await_arrival(connection: &Arc<impl Received>) {
    if !lock(&connection.reader().woken).is_thread && !parking::leave(connection) {
        leave_to_others(&**connection);
    }
}

/// Reads the available bytes, and delivers the replies; returns whether these were all.
fn read_some(connection: &impl Received) -> Result<bool, Loss> {
    let reader = connection.reader();
    let mut inbox = lock(&reader.inbox);
    let is_all = inbox.fill(&reader.stream).map_err(Loss::new)?;
    while let Some(reply) = inbox.parse().map_err(Loss::new)? {
        connection.deliver(reply)?;
    }
    Ok(is_all)
}

fn leave_to_others(connection: &impl Received) {
    let reader = connection.reader();
    let mut woken = lock(&reader.woken);
    if !woken.is_io && !woken.is_thread && !woken.is_task && connection.is_awaited() {
        reader.watch(&mut woken, true);
    }
}

impl<C: Received> Readable for C {
    fn read_until_woken(&self, waiting: &Waiting) {
        if waiting.is_woken() {
            return leave_to_others(self);
        }
        if let Some(thread) = Thread::begin(self) {
            thread.read(waiting);
        }
    }

    fn leave_to_others(&self) {
        leave_to_others(self);
    }
}

/// A thread that reads for all callers until it has its own reply.
struct Thread<'a, C: Received>(&'a C);

impl<'a, C: Received> Thread<'a, C> {
    /// None if another thread reads.
    fn begin(connection: &'a C) -> Option<Self> {
        let reader = connection.reader();
        let mut woken = lock(&reader.woken);
        if woken.is_thread {
            return None;
        }
        woken.is_thread = true;
        reader.watch(&mut woken, false);
        Some(Self(connection))
    }

    fn read(&self, waiting: &Waiting) {
        let reader = self.0.reader();
        while !waiting.is_woken() && !reader.is_over.load(Ordering::Acquire) {
            match reader.stream.until_readable(waiting, CHECK_EVERY) {
                None => return,
                Some(false) => {}
                Some(true) => {
                    if let Err(loss) = read_some(self.0) {
                        return reader.lose(loss);
                    }
                }
            }
        }
    }
}

impl<C: Received> Drop for Thread<'_, C> {
    fn drop(&mut self) {
        // First: a command sent before is seen below, and a thread that sends one later has the socket watched itself.
        lock(&self.0.reader().woken).is_thread = false;
        leave_to_others(self.0);
    }
}

/// A task on the callers' runtime that reads.
struct Task<C: Received>(Arc<C>);

impl<C: Received> Task<C> {
    async fn read(&self, receiver: &Receiver) {
        let reader = self.0.reader();
        loop {
            match read_some(&*self.0) {
                Err(loss) => return reader.lose(loss),
                Ok(false) => tokio::task::yield_now().await,
                Ok(true) => tokio::select! {
                    readable = receiver.readable() => if readable.is_err() { return },
                    () = reader.ended.notified() => return,
                },
            }
            // The I/O thread may have taken over while this task was late.
            reader.watch(&mut lock(&reader.woken), false);
        }
    }
}

impl<C: Received> Drop for Task<C> {
    fn drop(&mut self) {
        let reader = self.0.reader();
        let mut woken = lock(&reader.woken);
        woken.is_task = false;
        reader.watch(&mut woken, true);
    }
}
