//! Confirmations: which part of a server's replicas has what a connection has written (WAIT).
//!
//! WAIT blocks its connection, so confirmations have one of their own, which is made when it is first needed. One WAIT at a
//! time is in flight, for all requests: a replica that has the last write of the connection has all earlier ones. It waits
//! for a short time first, and longer each time, so that requests which arrive meanwhile are not kept back for long.
//!
//! WAIT is about the writes of its own connection: on a new one, Valkey counts all replicas, whatever they have. So each
//! request names the connection on which it has written.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};

use super::errors;
use super::link::{Link, closed};
use super::pace::pause;
use super::resp::{Command, Reply};
use super::wire::Wire;
use crate::clock;
use crate::core::moment::Moment;
use crate::engine::Replicas;
use crate::error::StoreError;
use crate::sync::lock;
use crate::{foreign, thread};

/// The time of the first WAIT: most replicas answer within a millisecond, and requests behind it wait for this time at most
/// if one does not.
const SHORTEST: Duration = Duration::from_millis(50);

/// The longest time of a WAIT. Longer than a replica should be behind: some servers have each WAIT be for everything
/// that was written when the one before was sent. Shorter than the time for an answer, which a server may exceed by 100 ms.
const LONGEST: Duration = Duration::from_secs(1);

/// The confirmations of one server.
pub(super) struct Confirmations {
    pub(super) link: Arc<Link>,
    state: Mutex<State>,
    supervising: AbortHandle,
    io: Handle,
}

struct State {
    /// For these, a WAIT is in flight.
    awaited: Vec<Request>,
    /// These came after it was sent.
    arrived: Vec<Request>,
    is_waiting: bool,
    /// The time of the next WAIT.
    time: Duration,
}

struct Request {
    /// The connection on which it has written.
    wire: Arc<Wire>,
    wanted: u32,
    until: Moment,
    done: oneshot::Sender<Result<u32, StoreError>>,
}

impl Confirmations {
    /// Starts to connect.
    pub(super) fn start(link: Arc<Link>, io: &Handle) -> Arc<Self> {
        let supervised = link.clone();
        let supervise = thread::lasting(move || supervised.clone().supervise());
        let supervising = io.spawn(supervise).abort_handle();
        let state =
            State { awaited: Vec::new(), arrived: Vec::new(), is_waiting: false, time: SHORTEST };
        Arc::new(Self { link, state: Mutex::new(state), supervising, io: io.clone() })
    }

    /// Ends the connection.
    pub(super) fn end(&self) {
        self.link.monitor.end();
        self.supervising.abort();
    }

    /// How many replicas have everything that was written on this connection so far: as many as wanted, or fewer after the
    /// time is over. An error if no answer comes by then, whatever the connection does.
    pub(super) async fn confirm(
        self: &Arc<Self>,
        wire: Arc<Wire>,
        replicas: Replicas,
    ) -> Result<u32, StoreError> {
        let (done, answer) = oneshot::channel();
        let until = clock::now() + replicas.within();
        if self.add(Request { wire, wanted: replicas.count(), until, done }) {
            self.wait();
        }
        // Another WAIT may precede it, and its own may be answered late.
        let time = replicas.within() + LONGEST + self.link.trip.response_time();
        let mut alarm = Alarm(self.io.spawn(pause(time)));
        tokio::select! {
            biased;
            answer = answer => answer.unwrap_or_else(|_| Err(closed())),
            _ = &mut alarm.0 => Err(StoreError::unknown("the server has not answered a WAIT in time")),
        }
    }

    /// As if a WAIT were in flight that is never answered.
    #[cfg(test)]
    pub(super) fn pretend_to_wait(&self) {
        lock(&self.state).is_waiting = true;
    }

    /// Adds a request. True if no WAIT is in flight.
    fn add(&self, request: Request) -> bool {
        let mut state = lock(&self.state);
        state.arrived.push(request);
        !std::mem::replace(&mut state.is_waiting, true)
    }

    /// Sends a WAIT for all requests on one connection, if there are any. One at a time is in flight, until [`InFlight`] is
    /// dropped.
    fn wait(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        let Some((wire, wanted, time)) = state.next(clock::now()) else { return };
        drop(state);
        let command = Command::new("WAIT").arg(wanted.to_string()).arg(time.to_string());
        let in_flight = InFlight { confirmations: self.clone(), wire: wire.clone(), result: None };
        let done = Box::new(|result| {
            let mut in_flight = in_flight;
            in_flight.result = Some(result);
        });
        self.link.send_on(&wire, &command, done);
    }

    fn answered(&self, wire: &Arc<Wire>, result: Result<Reply, StoreError>) {
        let counted = result.and_then(|reply| count(&reply));
        let answered = lock(&self.state).take_answered(wire, &counted, clock::now());
        for request in answered {
            // It wakes tasks of foreign executors. A caller that has left drops it.
            foreign::call(|| drop(request.done.send(counted.clone())));
        }
    }
}

/// A WAIT that was sent. Whatever becomes of it, its requests are answered, and the next one is sent: otherwise no later
/// request would ever be.
struct InFlight {
    confirmations: Arc<Confirmations>,
    wire: Arc<Wire>,
    result: Option<Result<Reply, StoreError>>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let result = self.result.take().unwrap_or_else(|| Err(closed()));
        self.confirmations.answered(&self.wire, result);
        self.confirmations.wait();
    }
}

/// A timer on the I/O thread: the caller's executor may have none.
struct Alarm(JoinHandle<()>);

impl Drop for Alarm {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl State {
    /// The next WAIT: on which connection, for how many replicas, and for how many milliseconds. For the fewest that are
    /// wanted, so that one request is not kept back by another that wants more.
    fn next(&mut self, now: Moment) -> Option<(Arc<Wire>, u32, u128)> {
        self.awaited.append(&mut self.arrived);
        self.awaited.retain(|request| !request.done.is_closed());
        let Some(first) = self.awaited.first() else {
            (self.is_waiting, self.time) = (false, SHORTEST);
            return None;
        };
        let wire = first.wire.clone();
        let of_wire = || self.awaited.iter().filter(|request| Arc::ptr_eq(&request.wire, &wire));
        let wanted = of_wire().map(|request| request.wanted).min()?;
        let left = of_wire().map(|request| request.until.since(now)).min()?;
        // Zero would be for ever. Rounded up: the time is over when the answer arrives.
        let time = left.min(self.time).as_micros().div_ceil(1000).max(1);
        self.time = (self.time * 2).min(LONGEST);
        Some((wire, wanted, time))
    }

    /// The requests on this connection that have their answer.
    fn take_answered(
        &mut self,
        wire: &Arc<Wire>,
        counted: &Result<u32, StoreError>,
        now: Moment,
    ) -> Vec<Request> {
        let is_met = |request: &Request| matches!(counted, Ok(count) if *count >= request.wanted);
        let is_answered = |request: &mut Request| {
            let is_over = counted.is_err() || now >= request.until;
            Arc::ptr_eq(&request.wire, wire) && (is_over || is_met(request))
        };
        let answered: Vec<_> = self.awaited.extract_if(.., is_answered).collect();
        if answered.iter().any(is_met) {
            self.time = SHORTEST;
        }
        answered
    }
}

fn count(reply: &Reply) -> Result<u32, StoreError> {
    if let Reply::Error(error) = reply {
        return Err(errors::of_server(error));
    }
    let count = reply.number().and_then(|count| u32::try_from(count).ok());
    count.ok_or_else(|| StoreError::unknown("the server's answer to WAIT cannot be parsed"))
}
