//! The model: which owners have arrived, which wait, and what follows for the next request.

use super::*;

#[derive(Default)]
pub(super) struct Book {
    /// Owners that count at a latch, or have passed a barrier and may ask again.
    stays: Vec<Stay>,
    /// Owners whose lease has ended since the last operation: without waiters, they may still release.
    ended: Vec<Stay>,
    queue: Vec<Waiting>,
}

struct Stay {
    owner: Owner,
    /// Empty: it has left, and lingers.
    numbers: Vec<u64>,
    permits: u32,
    until: Moment,
}

struct Waiting {
    entry: Entry,
    alive_until: Moment,
}

impl Book {
    /// Removes ended leases, and dead waiters at the head of the queue. A dead waiter behind a live one may
    /// still ask again and keep its position.
    pub(super) fn settle(&mut self, now: Moment) {
        self.ended = self.stays.extract_if(.., |stay| stay.until <= now).collect();
        let dead = self.queue.iter().take_while(|waiting| waiting.alive_until <= now).count();
        self.queue.drain(..dead);
    }

    /// Waiters pass exactly when the permits of the arrivals reach the count; there are no other wake-ups.
    pub(super) fn judge_latch(
        &mut self,
        request: &AcquireRequest,
        outcome: &Acquired,
        passed: &[(Entry, std::time::Duration)],
        now: Moment,
    ) -> Verdict {
        let (count, wanted) = (request.shape.limit(), request.shape.permits());
        if self.is_inside(request.entry.owner) {
            ensure(passed.is_empty(), "I5: an owner that had arrived opened it again")?;
            return self.judge_again(request, outcome, now);
        }
        if wanted > 0 {
            let left = count.saturating_sub(self.counted());
            let is_new = self.stays.iter().all(|stay| stay.owner != request.entry.owner);
            if is_new && left > 0 {
                self.stay(request.entry, wanted.min(left), now + request.lease.duration());
            }
            ensure(matches!(outcome, Acquired::Granted(_)), "an arrival was refused")?;
        } else {
            self.judge_waiter(request, outcome, now)?;
        }
        self.judge_opening(self.counted() >= count, passed, now)
    }

    fn judge_waiter(
        &mut self,
        request: &AcquireRequest,
        outcome: &Acquired,
        now: Moment,
    ) -> Verdict {
        let is_open = self.counted() >= request.shape.limit();
        let is_let_in = matches!(outcome, Acquired::Granted(_));
        ensure(is_open || !is_let_in, "I1: passed a latch that was not open")?;
        ensure(!is_open || is_let_in, "refused at an open latch")?;
        if is_open { Ok(()) } else { self.judge_queued(request, outcome, now) }
    }

    /// All live waiters are notified, each once, in order of arrival; or none.
    fn judge_opening(
        &mut self,
        is_open: bool,
        passed: &[(Entry, std::time::Duration)],
        now: Moment,
    ) -> Verdict {
        if !is_open {
            return ensure(passed.is_empty(), "I1: a waiter passed too early");
        }
        let waiting = std::mem::take(&mut self.queue).into_iter();
        let living = waiting.filter(|waiting| waiting.alive_until > now).map(|it| it.entry);
        let is_right = living.eq(passed.iter().map(|(entry, _)| *entry));
        ensure(is_right, "I10: not exactly the waiters were notified, in their order")
    }

    /// It opens for all waiters and the request, and for no other entry.
    pub(super) fn judge_barrier(
        &mut self,
        request: &AcquireRequest,
        outcome: &Acquired,
        passed: &[(Entry, std::time::Duration)],
        now: Moment,
    ) -> Verdict {
        let entry = request.entry;
        if self.is_inside(entry.owner) {
            ensure(passed.is_empty(), "I5: a party that has passed opened it again")?;
            return self.judge_again(request, outcome, now);
        }
        let is_waiting = self.queue.iter().any(|waiting| waiting.entry == entry);
        if is_waiting || request.queue.is_none() {
            ensure(passed.is_empty(), "I1: opened by a request that does not wait")?;
            return self.judge_queued(request, outcome, now);
        }
        self.queue.retain(|waiting| waiting.alive_until > now);
        if self.queue.len() + 1 < request.shape.limit() as usize {
            let is_let_in = matches!(outcome, Acquired::Granted(_));
            ensure(!is_let_in && passed.is_empty(), "I1: opened before all were there")?;
            return self.judge_queued(request, outcome, now);
        }
        ensure(matches!(outcome, Acquired::Granted(_)), "the last party was refused")?;
        self.let_through(passed, now)?;
        self.stay(entry, 1, now + request.lease.duration());
        Ok(())
    }

    /// The entries of one owner pass together with its first one.
    fn let_through(&mut self, passed: &[(Entry, std::time::Duration)], now: Moment) -> Verdict {
        let mut waiting: Vec<_> = self.queue.drain(..).map(|waiting| waiting.entry).collect();
        let mut expected = Vec::new();
        while !waiting.is_empty() {
            let first = waiting[0];
            expected.extend(waiting.extract_if(.., |entry| entry.owner == first.owner));
        }
        let is_right = expected.iter().eq(passed.iter().map(|(entry, _)| entry));
        ensure(is_right, "I10: not exactly the waiters were notified, in their order")?;
        passed.iter().for_each(|&(entry, lease)| self.stay(entry, 1, now + lease));
        Ok(())
    }

    /// An owner that is inside gets its grant again, whatever it requests, and is not counted again.
    fn judge_again(
        &mut self,
        request: &AcquireRequest,
        outcome: &Acquired,
        now: Moment,
    ) -> Verdict {
        let Entry { owner, number } = request.entry;
        ensure(matches!(outcome, Acquired::Granted(_)), "I5: asked again, and was refused")?;
        self.queue.retain(|waiting| waiting.entry != request.entry);
        if let Some(stay) = self.inside(owner) {
            stay.until = stay.until.max(now + request.lease.duration());
        }
        if let Some(stay) = self.inside(owner).filter(|stay| !stay.numbers.contains(&number)) {
            stay.numbers.push(number);
        }
        Ok(())
    }

    fn judge_queued(
        &mut self,
        request: &AcquireRequest,
        outcome: &Acquired,
        now: Moment,
    ) -> Verdict {
        let waiting = self.queue.iter_mut().find(|waiting| waiting.entry == request.entry);
        let waits = waiting.is_some() || request.queue.is_some();
        let is_right = match outcome {
            Acquired::Queued(_) => waits,
            Acquired::Busy => !waits,
            _ => false,
        };
        ensure(is_right, "I1: passed, or neither queued nor refused")?;
        let Some(queueing) = request.queue else { return Ok(()) };
        let alive_until = now + queueing.heartbeat;
        match waiting {
            Some(waiting) => waiting.alive_until = waiting.alive_until.max(alive_until),
            None => self.queue.push(Waiting { entry: request.entry, alive_until }),
        }
        Ok(())
    }

    pub(super) fn extend(&mut self, entry: Entry, until: Moment) -> bool {
        let stay = self.inside(entry.owner).filter(|stay| stay.numbers.contains(&entry.number));
        stay.map(|stay| stay.until = stay.until.max(until)).is_some()
    }

    /// Ends an entry, or gives back permits. Returns whether there was such an entry.
    pub(super) fn release(
        &mut self,
        request: &ReleaseRequest,
        may_revive: bool,
        now: Moment,
    ) -> bool {
        let Entry { owner, number } = request.entry;
        if may_revive && self.inside(owner).is_none() {
            self.stays.extend(self.ended.extract_if(.., |stay| stay.owner == owner));
        }
        let Some(stay) = self.inside(owner).filter(|stay| stay.numbers.contains(&number)) else {
            return false;
        };
        if request.keep > 0 {
            if stay.numbers.len() == 1 {
                stay.permits = stay.permits.min(request.keep);
            }
        } else {
            stay.numbers.retain(|&other| other != number);
            if stay.numbers.is_empty() {
                stay.until = now + request.linger;
            }
        }
        self.stays.retain(|stay| stay.until > now);
        true
    }

    pub(super) fn cancel(&mut self, request: ReleaseRequest, now: Moment) {
        let before = self.queue.len();
        self.queue.retain(|waiting| waiting.entry != request.entry);
        if self.queue.len() == before {
            self.release(&request, false, now);
        }
    }

    /// Takes it from all owners, or from one. Returns how many lost it.
    pub(super) fn force(&mut self, expected: Option<Owner>) -> usize {
        let is_meant = |stay: &mut Stay| expected.is_none_or(|owner| stay.owner == owner);
        self.stays.extract_if(.., is_meant).count()
    }

    fn stay(&mut self, entry: Entry, permits: u32, until: Moment) {
        let Entry { owner, number } = entry;
        match self.inside(owner) {
            Some(stay) => {
                stay.numbers.push(number);
                stay.until = stay.until.max(until);
            }
            None => {
                self.stays.retain(|stay| stay.owner != owner);
                self.stays.push(Stay { owner, numbers: vec![number], permits, until });
            }
        }
    }

    fn is_inside(&mut self, owner: Owner) -> bool {
        self.inside(owner).is_some()
    }

    fn inside(&mut self, owner: Owner) -> Option<&mut Stay> {
        self.stays.iter_mut().find(|stay| stay.owner == owner && !stay.numbers.is_empty())
    }

    fn counted(&self) -> u32 {
        self.stays.iter().map(|stay| stay.permits).sum()
    }
}
