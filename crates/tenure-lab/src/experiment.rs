//! One experiment: servers, clients in processes of their own, and everything that happens, recorded in order.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::client::{self, Opening, stock};
use crate::history::{Event, History, What};
use crate::link::{ask, connect};
use crate::servers::Servers;
use crate::time::{millis, now, pause};

/// How long a client may take to be ready: usually milliseconds.
const START: Duration = Duration::from_secs(10);

/// The lock that an experiment uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The lock of a stage of the source documents.
    Historic(usize),
    /// Tenure.
    Tenure,
}

/// An experiment that cannot be done, and why.
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// One run of a stage, with one lock.
pub(crate) struct Experiment {
    side: Side,
    key: String,
    lease: Duration,
    pub(crate) replicas: u32,
    program: PathBuf,
    pub(crate) servers: Servers,
    record: Arc<Record>,
    requests: Option<u64>,
}

/// What has happened so far.
#[derive(Default)]
struct Record {
    begin: u64,
    events: Mutex<Vec<Event>>,
    changed: Condvar,
}

impl Experiment {
    /// Prepares an experiment. `program` is the one that becomes a client under [`client::NAME`].
    pub(crate) fn new(
        side: Side,
        key: &str,
        lease: Duration,
        program: PathBuf,
        servers: Servers,
    ) -> Self {
        let record = Arc::new(Record { begin: now(), ..Record::default() });
        let key = key.to_owned();
        Self { side, key, lease, replicas: 0, program, servers, record, requests: None }
    }

    pub(crate) fn is_tenure(&self) -> bool {
        self.side == Side::Tenure
    }

    /// Starts a client, and waits until it is ready.
    pub(crate) fn client(&self, name: &str) -> Outcome<Client> {
        self.client_of(&self.servers, name)
    }

    /// Starts a client that will be cut off from the last of several servers.
    pub(crate) fn client_behind_proxy(&self, name: &str) -> Outcome<Client> {
        self.client_of(&self.servers.behind_proxy(), name)
    }

    fn client_of(&self, servers: &Servers, name: &str) -> Outcome<Client> {
        let mut command = Command::new(&self.program);
        command
            .arg0(client::NAME)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child =
            command.spawn().map_err(|error| format!("no client can be started: {error}"))?;
        let (orders, output) = (child.stdin.take(), child.stdout.take());
        let (record, client) = (self.record.clone(), name.to_owned());
        std::thread::spawn(move || {
            for line in
                output.into_iter().flat_map(|it| BufReader::new(it).lines()).map_while(Result::ok)
            {
                record.read(&client, &line);
            }
        });
        let mut client =
            Client { name: name.to_owned(), child, orders, record: self.record.clone() };
        let urls = match self.side {
            Side::Tenure => vec![servers.url()],
            Side::Historic(_) => servers.urls(),
        };
        let (stage, data) = (self.stage(), servers.urls().swap_remove(0));
        let (key, lease, replicas) = (&*self.key, self.lease, self.replicas);
        let opening = Opening { stage, key, lease, replicas, urls: &urls, data: &data };
        client.order(&opening.to_string());
        match client.until(START, |what| matches!(what, What::Ready | What::Refused(_))) {
            Some(What::Ready) => Ok(client),
            Some(What::Refused(why)) => Err(format!("a client cannot begin: {why}")),
            _ => Err("a client does not begin".to_owned()),
        }
    }

    fn stage(&self) -> Option<usize> {
        match self.side {
            Side::Historic(stage) => Some(stage),
            Side::Tenure => None,
        }
    }

    /// Clients of these names.
    pub(crate) fn clients<const N: usize>(&self, names: [&str; N]) -> Outcome<[Client; N]> {
        let clients: Outcome<Vec<_>> = names.into_iter().map(|name| self.client(name)).collect();
        clients?.try_into().map_err(|_| "as many clients as names".to_owned())
    }

    /// Records what was done to the servers.
    pub(crate) fn fault(&self, what: &str) {
        self.record.add("", now(), What::Fault(what.to_owned()));
    }

    /// Puts items on sale.
    pub(crate) fn put_on_sale(&self, count: usize) -> Outcome {
        self.on_server(&["SET", &stock(&self.key), &count.to_string()]).map(drop)
    }

    fn on_server(&self, words: &[&str]) -> Outcome<Option<String>> {
        let mut link = connect(&self.servers.urls()[0]).map_err(|error| error.to_string())?;
        ask(&mut link, words).map(|reply| reply.text()).map_err(|error| error.to_string())
    }

    /// Counts the requests that the server reads while `work` runs.
    pub(crate) fn count_requests(&mut self, work: impl FnOnce(&Self) -> Outcome) -> Outcome {
        let before = self.requests_read()?;
        work(self)?;
        self.requests = Some(self.requests_read()?.saturating_sub(before));
        Ok(())
    }

    fn requests_read(&self) -> Outcome<u64> {
        let info = self.on_server(&["INFO", "stats"])?.unwrap_or_default();
        let count = info.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
        let count = count.and_then(|count| count.trim().parse().ok());
        count.ok_or_else(|| "the server does not count the requests that it reads".to_owned())
    }

    /// Ends it, and removes its keys from a server that is not its own.
    pub(crate) fn finish(self) -> (History, Option<u64>) {
        let stock = stock(&self.key);
        let _ = self.on_server(&["DEL", &self.key, &stock, &format!("{stock}:fence")]);
        // The end of the observation: who waits now has waited until now.
        self.fault("the experiment ends");
        let events = std::mem::take(&mut *self.record.events());
        (events.into_iter().collect(), self.requests)
    }
}

impl Record {
    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line of a client: a time, and what happened.
    fn read(&self, client: &str, line: &str) {
        let event = line
            .split_once(' ')
            .and_then(|(at, what)| Some((at.parse().ok()?, what.parse::<What>().ok()?)));
        if let Some((at, what)) = event {
            self.add(client, at, what);
        }
    }

    fn add(&self, client: &str, at: u64, what: What) {
        let since = |at: u64| at.saturating_sub(self.begin);
        let (at, what) = match what {
            What::Until(until) => (since(at), What::Until(since(until))),
            what => (since(at), what),
        };
        let mut events = self.events();
        let last = events.iter_mut().rev().find(|event| event.client == client);
        match (last.map(|event| &mut event.what), &what) {
            // One more report of the same belief.
            (Some(What::Until(before)), What::Until(until)) if at <= *before => *before = *until,
            _ => events.push(Event { at, client: client.to_owned(), what }),
        }
        self.changed.notify_all();
    }
}

/// A client in a process of its own, which is killed when this is dropped.
pub(crate) struct Client {
    name: String,
    child: Child,
    orders: Option<ChildStdin>,
    record: Arc<Record>,
}

impl Client {
    /// Sends an order. A client that was killed gets none.
    pub(crate) fn order(&mut self, order: &str) {
        if let Some(orders) = &mut self.orders {
            let _ = writeln!(orders, "{order}").and_then(|()| orders.flush());
        }
    }

    /// Waits until this client has reported such an event, the last of its events counting; none if it does not in
    /// time.
    pub(crate) fn until(&self, within: Duration, is_it: impl Fn(&What) -> bool) -> Option<What> {
        let end = now() + u64::try_from(within.as_micros()).unwrap_or(u64::MAX / 2);
        let mut events = self.record.events();
        loop {
            let mut own = events.iter().filter(|event| event.client == self.name);
            let reported = own.rfind(|event| !matches!(event.what, What::Until(_)));
            if let Some(event) = reported.filter(|event| is_it(&event.what)) {
                return Some(event.what.clone());
            }
            let left = end.saturating_sub(now());
            if left == 0 {
                return None;
            }
            let waited = self.record.changed.wait_timeout(events, Duration::from_micros(left));
            events = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until it believes that it holds the lock. False if it does not in time.
    pub(crate) fn until_it_holds(&self, within: Duration) -> bool {
        self.until(within, |what| *what == What::Holds).is_some()
    }

    /// Has it acquire, and waits until it has.
    pub(crate) fn acquires(&mut self) -> Outcome {
        self.order("acquire");
        match self.until(millis(3_000), |what| matches!(what, What::Holds | What::Refused(_))) {
            Some(What::Holds) => Ok(()),
            _ => Err(format!("client {} did not get a free lock", self.name)),
        }
    }

    /// Has it release, if it holds the lock.
    pub(crate) fn releases_if_it_holds(&mut self) {
        if self.until_it_holds(Duration::ZERO) {
            self.order("release");
            self.until(millis(1_000), |what| *what == What::Releases);
        }
    }

    pub(crate) fn stops(&self) {
        self.signal(Signal::STOP, What::Stopped);
    }

    pub(crate) fn continues(&self) {
        self.signal(Signal::CONT, What::Continued);
    }

    fn signal(&self, signal: Signal, what: What) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
        self.record.add(&self.name, now(), what);
    }

    /// Kills it, as a crash would.
    pub(crate) fn dies(mut self) {
        self.record.add(&self.name, now(), What::Killed);
        self.end();
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.end();
    }
}

/// Lets time pass, in which the clients work.
pub(crate) fn let_pass(count: u64) {
    pause(millis(count));
}
