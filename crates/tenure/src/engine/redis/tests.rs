//! The scripts against the table: the same random operations, at the same told time, must have the
//! same outcomes, wake-ups and state. Only the server's clock is replaced, by keys that the test
//! sets; all else is the scripts as they are.

use std::sync::Arc;
use std::time::Duration;

use proptest::test_runner::{Config, TestCaseError};
use redis::{Connection, Value};
use tenure_testkit::Server;

use super::batch::Batched;
use super::scripts::{self, Script};
use super::*;
use crate::core::lease::Lease;
use crate::core::moment::{Moment, Now};
use crate::core::table::operation::{Lock, Operation, operations};
use crate::core::table::{Effects, Table};
use crate::engine::{Queueing, Wakeup};
use crate::owner::{Entry, Owner};

/// The table and the scripts side by side.
struct Twins {
    table: Table,
    connection: Connection,
    ear: Connection,
    now: Moment,
    owners: Vec<Owner>,
    about: Arc<About>,
    client: String,
}

impl Twins {
    fn new(server: &Server) -> Self {
        let open = || redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        let (mut connection, mut ear) = (open(), open());
        redis::cmd("FLUSHALL").exec(&mut connection).unwrap();
        ear.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let client = format!("{:016x}", crate::owner::unique_number());
        let subscribe =
            redis::cmd("SUBSCRIBE").arg(format!("{}{client}", keys::CHANNEL)).to_owned();
        subscribe.exec(&mut ear).unwrap();
        Self {
            table: Table::default(),
            connection,
            ear,
            now: Moment::from_micros(1_794_768_132_030_839),
            owners: (0..5).map(|_| Owner::new()).collect(),
            about: Arc::new(About::this_process()),
            client,
        }
    }

    /// Performs an operation on both, and compares.
    fn perform(&mut self, operation: &Operation) -> Result<(), String> {
        let mut effects = Effects::new();
        let now = Now { clock: self.now, wall: self.now };
        match *operation {
            Operation::Acquire { lock, owner, number, lease, queue } => {
                let entry = self.entry(owner, number);
                let request = AcquireRequest {
                    name: LockName::new(lock.name()).unwrap(),
                    entry,
                    shape: lock.shape((u32::from(owner) + entry.number as u32) % 3 + 1),
                    lease: Lease::new(Duration::from_millis(lease.into())).unwrap(),
                    about: self.about.clone(),
                    queue: queue.map(|queue| Queueing {
                        heartbeat: Duration::from_millis(queue.heartbeat.into()),
                        claim: Duration::from_millis(queue.claim.into()),
                        fences: queue.fences,
                    }),
                };
                let expected = self.table.acquire(&request, 1, now, &mut effects);
                self.compare(&request, &expected)?;
            }
            Operation::Renew { lock, owner, lease } => {
                let renewal = Renewal {
                    name: LockName::new(lock.name()).unwrap(),
                    owner: self.owners[usize::from(owner)],
                    lease: Lease::new(Duration::from_millis(lease.into())).unwrap(),
                };
                let expected = self.table.renew(&renewal, now, &mut effects);
                self.compare(&renewal, &expected)?;
            }
            Operation::Release { lock, owner, number, linger } => {
                let request = ReleaseRequest {
                    name: LockName::new(lock.name()).unwrap(),
                    entry: self.entry(owner, number),
                    linger: Duration::from_millis(linger.into()),
                };
                let expected = self.table.release(&request, now, &mut effects);
                self.compare(&request, &expected)?;
            }
            Operation::Cancel { lock, owner, number } => {
                let request = CancelRequest {
                    name: LockName::new(lock.name()).unwrap(),
                    entry: self.entry(owner, number),
                };
                self.table.cancel(&request, now, &mut effects);
                self.compare(&request, &())?;
            }
            Operation::Force { lock, owner } => self.force(lock, owner, now, &mut effects)?,
            Operation::Inspect { .. } => {}
            Operation::Pass { millis, .. } => {
                self.now = self.now + Duration::from_millis(millis.into());
                return Ok(());
            }
        }
        self.compare_state(operation.lock(), now, &mut effects)?;
        self.hear(effects)
    }

    fn compare<O>(&mut self, operation: &O, expected: &O::Outcome) -> Result<(), String>
    where
        O: Batched,
        O::Outcome: PartialEq + std::fmt::Debug,
    {
        let mut arguments = Vec::new();
        operation.arguments(&mut arguments);
        let values = self.call(O::script(), operation.key(), &arguments);
        // Sent twice, it acts once (I5): the state and the wake-ups compared below would show it.
        self.call(O::script(), operation.key(), &arguments);
        let outcome = batch::read::<O>(values.into_iter().next()).map_err(|it| it.to_string())?;
        same("outcome", &outcome, expected)
    }

    fn force(
        &mut self,
        lock: Lock,
        owner: Option<u8>,
        now: Now,
        effects: &mut Effects,
    ) -> Result<(), String> {
        let expected = owner.map(|owner| self.owners[usize::from(owner)]);
        let request = ForceRequest {
            name: LockName::new(lock.name()).unwrap(),
            expected,
            reason: "a test".into(),
            by: self.about.clone(),
        };
        let outcome = self.table.force_release(&request, now, effects);
        let expected = expected.map(|owner| owner.to_string()).unwrap_or_default();
        let record = format!("{} a%20test", records::client(&self.about));
        let arguments = [expected.into(), record.into(), b"60000".to_vec()];
        let values = self.call(&scripts::FORCE, keys::lock(&request.name), &arguments);
        let mut taken: Vec<Owner> = operations::array(&values[0])
            .unwrap_or_default()
            .iter()
            .filter_map(|owner| operations::text(owner)?.parse().ok())
            .collect();
        let mut owners = match outcome {
            ForceOutcome::Released(owners) => owners,
            ForceOutcome::NotHeld => Vec::new(),
        };
        taken.sort_unstable();
        owners.sort_unstable();
        same("owners forced out", &taken, &owners)
    }

    /// Every wake-up of the table is heard from the server; in the same order, but for who lost a
    /// lock of many.
    fn hear(&mut self, effects: Effects) -> Result<(), String> {
        let mut expected: Vec<_> = effects.into_iter().map(|(_, wakeup)| wakeup).collect();
        let mut heard = Vec::new();
        for _ in &expected {
            let message = self.ear.recv_response().map_err(|error| error.to_string())?;
            let message = redis::Msg::from_owned_value(message).ok_or("no message")?;
            let text = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
            heard.push(subscriber::read(&text).ok_or(text)?);
        }
        let order = |wakeup: &Wakeup| match wakeup {
            Wakeup::Lost { owner, .. } => (0, Some(*owner)),
            _ => (1, None),
        };
        expected.sort_by_key(order);
        heard.sort_by_key(order);
        same("wake-ups", &heard, &expected)
    }

    /// Holders and waiters are the same to the microsecond.
    fn compare_state(&mut self, lock: Lock, now: Now, effects: &mut Effects) -> Result<(), String> {
        let name = LockName::new(lock.name()).unwrap();
        let mut expected = self.table.inspect(&name, now, effects);
        let arguments = [LockInfo::WAITERS_SHOWN.to_string().into()];
        let values = self.call(&scripts::INSPECT, keys::lock(&name), &arguments);
        let about = [(self.client.clone(), (*self.about).clone())];
        let mut info = records::lock(name, &values[0], &about.into()).ok_or("not understood")?;
        // A fence that ran ahead of the clock tells "since" wrong by microseconds.
        for (seen, told) in info.holders.iter_mut().zip(&expected.holders) {
            seen.since = told.since;
        }
        for record in [&mut info.forced, &mut expected.forced].into_iter().flatten() {
            record.owners.sort_unstable();
        }
        same("state", &info, &expected)
    }

    fn call(&mut self, script: &Script, key: String, arguments: &[Vec<u8>]) -> Vec<Value> {
        let micros = self.now.as_micros();
        let clock = [("test:s", micros / 1_000_000), ("test:us", micros % 1_000_000)];
        let text =
            script.text.replace("redis.call('TIME')", "redis.call('MGET', 'test:s', 'test:us')");
        let mut command = redis::cmd("EVAL");
        command.arg(text).arg(1).arg(key).arg("nonce").arg(&self.client).arg(keys::CHANNEL);
        command.arg(3_600_000).arg(arguments);
        redis::cmd("MSET").arg(&clock).exec(&mut self.connection).unwrap();
        match command.query(&mut self.connection).unwrap() {
            Value::Array(values) => values[1..].to_vec(),
            other => panic!("{other:?}"),
        }
    }

    fn entry(&self, owner: u8, number: u8) -> Entry {
        let number = if owner.is_multiple_of(2) { 0 } else { number + 1 };
        Entry { owner: self.owners[usize::from(owner)], number: number.into() }
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, expected: &T) -> Result<(), String> {
    if got == expected {
        return Ok(());
    }
    Err(format!("another {what}:\n  script {got:?}\n  table  {expected:?}"))
}

/// 200 sequences, or as many as `PROPTEST_CASES` says, up to 5,000: each takes milliseconds.
fn config() -> Config {
    let cases = std::env::var("PROPTEST_CASES").map_or(200, |_| Config::default().cases.min(5_000));
    Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() }
}

/// I1, I3, I4, I5, I10, as far as the table keeps them.
#[test]
fn the_scripts_do_what_the_table_does() {
    let server = Server::start();
    let mut runner = proptest::test_runner::TestRunner::new(config());
    let result = runner.run(&(0..3usize, operations()), |(only, operations)| {
        // One lock at a time: the table has one counter of fences for all of them.
        let only = [Lock::Mutex, Lock::Semaphore, Lock::ReadWrite][only];
        let mut twins = Twins::new(&server);
        for operation in operations.iter().map(|operation| operation.on(only)) {
            twins.perform(&operation).map_err(|difference| {
                TestCaseError::fail(format!("{operation:?}: {difference}"))
            })?;
        }
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}
