//! Tables that are wrong on purpose, each with a bug of locks in the wild.

use super::*;
use crate::core::fence::Fence;
use crate::core::shape::Shape;
use crate::engine::{ForceRequest, Grant};
use crate::info::About;

macro_rules! mutant {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Default)]
        pub(crate) struct $name(Table);
    };
}

mutant! {
    /// `DEL key`, for any caller.
    AnyoneReleases
}

impl Subject for AnyoneReleases {
    fn table(&mut self) -> &mut Table {
        &mut self.0
    }

    fn release(
        &mut self,
        request: &ReleaseRequest,
        now: Now,
        effects: &mut Effects,
    ) -> ReleaseOutcome {
        let outcome = self.0.release(request, now, effects);
        let force = ForceRequest {
            name: request.name.clone(),
            expected: None,
            reason: "".into(),
            by: std::sync::Arc::new(About::this_process()),
        };
        match self.0.force_release(&force, now, &mut Effects::new()) {
            ForceOutcome::Released(_) => ReleaseOutcome::Released { remaining: 0 },
            ForceOutcome::NotHeld => outcome,
        }
    }
}

mutant! {
    /// `SET key owner PX lease`, to renew a lock that may have ended.
    RenewalRecreates
}

impl Subject for RenewalRecreates {
    fn table(&mut self) -> &mut Table {
        &mut self.0
    }

    fn renew(&mut self, renewal: &Renewal, now: Now, effects: &mut Effects) -> Renewed {
        self.0.renew(renewal, now, effects);
        Renewed::Extended
    }
}

mutant! {
    /// Checks first and writes later, so that one holder too many gets in.
    OneTooMany
}

impl Subject for OneTooMany {
    fn table(&mut self) -> &mut Table {
        &mut self.0
    }

    fn acquire(&mut self, request: &AcquireRequest, now: Now, effects: &mut Effects) -> Acquired {
        let (shape, mut request) = (request.shape, request.clone());
        if shape.kind() == crate::Kind::Semaphore {
            request.shape = Shape::new(shape.kind(), shape.limit() + 1, shape.permits()).unwrap();
        }
        self.0.acquire(&request, 1, now, effects)
    }
}

mutant! {
    /// The fence is the time.
    FenceFromCalendar
}

impl Subject for FenceFromCalendar {
    fn table(&mut self) -> &mut Table {
        &mut self.0
    }

    fn acquire(&mut self, request: &AcquireRequest, now: Now, effects: &mut Effects) -> Acquired {
        match self.0.acquire(request, 1, now, effects) {
            Acquired::Granted(grant) => {
                let fence = Fence::from_value(now.wall.as_micros());
                Acquired::Granted(Grant { fence, ..grant })
            }
            other => other,
        }
    }
}

/// `HINCRBY`, which counts every time it is sent.
#[derive(Default)]
pub(crate) struct CountsTwice {
    table: Table,
    sent: u64,
}

impl Subject for CountsTwice {
    fn table(&mut self) -> &mut Table {
        &mut self.table
    }

    fn acquire(&mut self, request: &AcquireRequest, now: Now, effects: &mut Effects) -> Acquired {
        self.sent += 1;
        let mut request = request.clone();
        request.entry.number = self.sent;
        self.table.acquire(&request, 1, now, effects)
    }
}

mutant! {
    /// Serves the second waiter.
    SkipsTheHead
}

impl Subject for SkipsTheHead {
    fn table(&mut self) -> &mut Table {
        &mut self.0
    }

    fn release(
        &mut self,
        request: &ReleaseRequest,
        now: Now,
        effects: &mut Effects,
    ) -> ReleaseOutcome {
        let mut first = Effects::new();
        let outcome = self.0.release(request, now, &mut first);
        for (client_id, wakeup) in first {
            match wakeup {
                Wakeup::Granted { name, entry, .. } => {
                    self.0.cancel(&CancelRequest { name, entry }, now, effects);
                }
                other => effects.push((client_id, other)),
            }
        }
        outcome
    }
}

mutant! {
    /// Counts from zero, so that a latch opens one early.
    OpensEarly
}

impl Subject for OpensEarly {
    fn table(&mut self) -> &mut Table {
        &mut self.0
    }

    fn acquire(&mut self, request: &AcquireRequest, now: Now, effects: &mut Effects) -> Acquired {
        let (shape, mut request) = (request.shape, request.clone());
        let limit = shape.limit() - 1;
        request.shape = Shape::new(shape.kind(), limit, shape.permits().min(limit)).unwrap();
        self.0.acquire(&request, 1, now, effects)
    }
}

mutant! {
    /// A waiter never expires, even without a heartbeat.
    CountsTheDead
}

impl Subject for CountsTheDead {
    fn table(&mut self) -> &mut Table {
        &mut self.0
    }

    fn acquire(&mut self, request: &AcquireRequest, now: Now, effects: &mut Effects) -> Acquired {
        let mut request = request.clone();
        if let Some(queue) = &mut request.queue {
            queue.heartbeat = std::time::Duration::from_secs(3600);
        }
        self.0.acquire(&request, 1, now, effects)
    }
}

mutant! {
    /// Grants a free lock with whatever fence is proposed.
    GrantsOutdated
}

impl Subject for GrantsOutdated {
    fn table(&mut self) -> &mut Table {
        &mut self.0
    }

    fn acquire(&mut self, request: &AcquireRequest, now: Now, effects: &mut Effects) -> Acquired {
        let acquired = self.0.acquire(request, 1, now, effects);
        let (Acquired::Outdated { .. }, Some(proposal)) = (&acquired, request.proposal) else {
            return acquired;
        };
        let unproposed = AcquireRequest { proposal: None, ..request.clone() };
        match self.0.acquire(&unproposed, 1, now, effects) {
            Acquired::Granted(grant) => Acquired::Granted(Grant { fence: proposal.fence, ..grant }),
            other => other,
        }
    }
}

mutant! {
    /// Extends the lease only.
    ForgetsCommit
}

impl Subject for ForgetsCommit {
    fn table(&mut self) -> &mut Table {
        &mut self.0
    }

    fn renew(&mut self, renewal: &Renewal, now: Now, effects: &mut Effects) -> Renewed {
        self.0.renew(&Renewal { commit: None, ..renewal.clone() }, now, effects)
    }
}

mutant! {
    /// First come, first served, as on a single server: the nodes of a quorum hand over to different waiters.
    OrdersByArrival
}

impl Subject for OrdersByArrival {
    fn table(&mut self) -> &mut Table {
        &mut self.0
    }

    fn acquire(&mut self, request: &AcquireRequest, now: Now, effects: &mut Effects) -> Acquired {
        let mut request = request.clone();
        let is_held = self.0.inspect(&request.name, now, effects).holding > 0;
        if is_held && request.queue.is_some() {
            request.proposal = None;
        }
        self.0.acquire(&request, 1, now, effects)
    }
}
