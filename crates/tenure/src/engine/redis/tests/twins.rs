//! The table and the scripts side by side: each operation is performed by both, and the results are compared.

use super::*;

/// The table and the scripts side by side.
pub(super) struct Twins {
    table: Table,
    pub(super) caller: Caller,
    owners: Vec<Owner>,
    about: Arc<About>,
    /// The holder at the last inspection.
    holder: Option<u8>,
}

impl Twins {
    pub(super) fn new(server: &Server) -> Self {
        Self {
            table: Table::default(),
            caller: Caller::new(server),
            owners: (0..5).map(|_| Owner::new()).collect(),
            about: Arc::new(About::this_process()),
            holder: None,
        }
    }

    /// Performs an operation on both, and compares.
    pub(super) fn perform(&mut self, operation: &Operation) -> Result<(), String> {
        let mut effects = Effects::new();
        let now = Now { clock: self.caller.now, wall: self.caller.now };
        match *operation {
            Operation::Acquire { lock, owner, number, lease, queue, proposal } => {
                let entry = self.entry(owner, number);
                let request = AcquireRequest {
                    name: LockName::new(lock.name()).unwrap(),
                    entry,
                    shape: lock.shape(owner, entry.number),
                    lease: Lease::new(Duration::from_millis(lease.into())).unwrap(),
                    about: self.about.clone(),
                    queue: queue.map(|queue| Queueing {
                        heartbeat: Duration::from_millis(queue.heartbeat.into()),
                        claim: Duration::from_millis(queue.claim.into()),
                        fences: queue.fences,
                    }),
                    proposal: operation::proposal(proposal, self.last(), now.wall),
                };
                let expected = self.table.acquire(&request, 1, now, &mut effects);
                self.compare(&request, &expected)?;
            }
            Operation::Renew { lock, owner, number, lease, commit } => {
                let renewal = Renewal {
                    name: LockName::new(lock.name()).unwrap(),
                    entry: self.entry(owner, number),
                    lease: Lease::new(Duration::from_millis(lease.into())).unwrap(),
                    commit: commit.map(|it| it.fence(self.last(), now.wall)),
                };
                let expected = self.table.renew(&renewal, now, &mut effects);
                self.compare(&renewal, &expected)?;
            }
            Operation::Release { lock, owner, number, linger, keep } => {
                let request = ReleaseRequest {
                    name: LockName::new(lock.name()).unwrap(),
                    entry: self.entry(owner, number),
                    linger: Duration::from_millis(linger.into()),
                    keep: keep.into(),
                    is_contended: false,
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
                self.caller.pass(Duration::from_millis(millis.into()));
                return Ok(());
            }
        }
        self.compare_state(operation.lock(), now, &mut effects)?;
        self.compare_wakeups(effects)
    }

    fn compare<O>(&mut self, operation: &O, expected: &O::Outcome) -> Result<(), String>
    where
        O: Batched,
        O::Outcome: PartialEq + std::fmt::Debug,
    {
        let client = self.caller.client.clone();
        let ask = |it: &mut Command| operation.arguments(common(&client), it);
        let values = self.call(O::script(), operation.name(), ask);
        // Sent twice, it acts once (I5): the state and the wake-ups compared below would show it.
        self.call(O::script(), operation.name(), ask);
        let mut lines = batch::lines(&values).map_err(|it| it.to_string())?;
        let outcome = batch::read(operation, lines.next());
        let outcome = outcome.map_err(|it| it.to_string())?;
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
        let values = self.call(&scripts::FORCE, &request.name, |command| {
            [&expected, &record, "60000"].iter().for_each(|argument| command.push(argument));
        });
        let taken = values.array().and_then(|values| values[1].array()).unwrap_or_default().iter();
        let mut taken: Vec<Owner> = taken.filter_map(|owner| owner.text()?.parse().ok()).collect();
        let mut owners = match outcome {
            ForceOutcome::Released(owners) => owners,
            ForceOutcome::NotHeld => Vec::new(),
        };
        taken.sort_unstable();
        owners.sort_unstable();
        same("owners forced out", &taken, &owners)
    }

    /// Every wake-up of the table is received from the server; in the same order, except for several owners that lose a
    /// lock at once, and for entries of one owner that are granted together.
    fn compare_wakeups(&mut self, effects: Effects) -> Result<(), String> {
        let mut expected: Vec<_> = effects.into_iter().map(|(_, wakeup)| wakeup).collect();
        let mut received = Vec::new();
        for _ in &expected {
            let message = convert(self.caller.receiver.read().map_err(|error| error.to_string())?);
            let text = message.array().and_then(|words| words.last()?.text()).unwrap_or_default();
            received.push(messages::read(text).ok_or(text)?);
        }
        let order = |wakeup: &Wakeup| match wakeup {
            Wakeup::Lost { owner, .. } => (0, Some(*owner)),
            _ => (1, None),
        };
        let entry = |wakeup: &Wakeup| match wakeup {
            Wakeup::Granted { entry, .. } => Some(*entry),
            _ => None,
        };
        for wakeups in [&mut expected, &mut received] {
            wakeups.sort_by_key(order);
            let of_one_owner = |one: &Wakeup, next: &Wakeup| {
                entry(one).map(|it| it.owner) == entry(next).map(|it| it.owner)
            };
            let runs = wakeups.chunk_by_mut(of_one_owner);
            runs.for_each(|run| run.sort_by_key(|it| entry(it).map(|entry| entry.number)));
        }
        same("wake-ups", &received, &expected)
    }

    /// Holders and waiters are the same to the microsecond.
    fn compare_state(&mut self, lock: Lock, now: Now, effects: &mut Effects) -> Result<(), String> {
        let name = LockName::new(lock.name()).unwrap();
        let mut expected = self.table.inspect(&name, now, effects);
        let holder = expected.holders.first().map(|it| it.owner);
        let holder = self.owners.iter().position(|owner| Some(*owner) == holder);
        self.holder = holder.and_then(|at| at.try_into().ok());
        let shown = [LockInfo::WAITERS_SHOWN, LockInfo::HOLDERS_SHOWN].map(|it| it.to_string());
        let values = self.call(&scripts::INSPECT, &name, |command| {
            shown.iter().for_each(|most| command.push(most));
        });
        let about = [(self.caller.client.clone(), (*self.about).clone())];
        let mut info =
            records::read_lock(name, &values.array().ok_or("no array")?[1], &about.into())
                .ok_or("not understood")?;
        // A repair of a semaphore may have the fence of another holder: those have no order.
        for info in [&mut info, &mut expected] {
            info.holders.sort_by_key(|holder| (holder.fence, holder.owner));
        }
        // With a fence that ran ahead of the clock, "since" is wrong by microseconds.
        for (seen, expected) in info.holders.iter_mut().zip(&expected.holders) {
            seen.since = expected.since;
        }
        for record in [&mut info.forced, &mut expected.forced].into_iter().flatten() {
            record.owners.sort_unstable();
        }
        same("state", &info, &expected)
    }

    fn call(
        &mut self,
        script: &'static Script,
        name: &LockName,
        arguments: impl FnOnce(&mut Command),
    ) -> Reply {
        self.caller.run(script, &[name], arguments)
    }

    /// The same operation on a contended mutex: acquires wait, and releases are the holder's. Most owners have one
    /// entry.
    pub(super) fn in_demand(&self, operation: &Operation) -> Operation {
        let mut operation = operation.on(Lock::Mutex);
        let holder = self.holder;
        match &mut operation {
            Operation::Acquire { owner, queue, number, .. } => {
                *owner = if (*owner, *number) == (3, 0) { 3 } else { *owner / 2 * 2 };
                let usual = operation::Queue { heartbeat: 150, claim: 50, fences: 3 };
                *queue = queue.or(Some(usual));
            }
            Operation::Release { owner, linger, keep, .. } => {
                (*owner, *keep) = (holder.unwrap_or(*owner), *keep / 2);
                *linger = if *linger < 40 { 0 } else { *linger };
            }
            Operation::Renew { owner, .. } => *owner = holder.unwrap_or(*owner),
            Operation::Pass { millis, .. } => *millis /= 2,
            // The record of a forced release stays for longer than a sequence takes.
            Operation::Force { owner: None, lock } => {
                operation = Operation::Inspect { lock: *lock }
            }
            Operation::Cancel { .. } | Operation::Force { .. } | Operation::Inspect { .. } => {}
        }
        operation
    }

    /// The last fence of the table.
    fn last(&self) -> Fence {
        Fence::from_value(self.table.last_fence())
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
    Err(format!("different {what}:\n  script {got:?}\n  table  {expected:?}"))
}
