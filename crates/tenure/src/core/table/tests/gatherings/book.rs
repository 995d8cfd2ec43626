//! Who has arrived, who waits, and what that means for the next.

use super::*;

#[derive(Default)]
pub(super) struct Book {
    /// Those who count at a latch, or have gone through a barrier and may ask again.
    stays: Vec<Stay>,
    /// Those whose lease has ended since anyone looked: who is not waited for may still leave.
    ended: Vec<Stay>,
    queue: Vec<Waiting>,
}

struct Stay {
    owner: Owner,
    /// None: it has left, and lingers.
    numbers: Vec<u64>,
    permits: u32,
    until: Moment,
}

struct Waiting {
    entry: Entry,
    alive_until: Moment,
}

impl Book {
    /// Ended leases go, and so do the dead at the head of the queue. One behind a live waiter may
    /// still ask again in its place.
    pub(super) fn look(&mut self, now: Moment) {
        self.ended = self.stays.extract_if(.., |stay| stay.until <= now).collect();
        let dead = self.queue.iter().take_while(|waiting| waiting.alive_until <= now).count();
        self.queue.drain(..dead);
    }

    /// Who waits is let through exactly when the permits of those who arrived reach the count, and
    /// nobody is told at any other time.
    pub(super) fn judge_latch(
        &mut self,
        request: &AcquireRequest,
        outcome: &Acquired,
        told: &[(Entry, std::time::Duration)],
        now: Moment,
    ) -> Verdict {
        let (count, wanted) = (request.shape.limit(), request.shape.permits());
        if self.is_inside(request.entry.owner) {
            ensure(told.is_empty(), "I5: who has arrived already let somebody through")?;
            return self.judge_again(request, outcome, now);
        }
        if wanted > 0 {
            let left = count.saturating_sub(self.counted());
            let is_new = self.stays.iter().all(|stay| stay.owner != request.entry.owner);
            if is_new && left > 0 {
                self.stay(request.entry, wanted.min(left), now + request.lease.duration());
            }
            ensure(matches!(outcome, Acquired::Granted(_)), "an arrival was kept out")?;
        } else {
            self.judge_waiter(request, outcome, now)?;
        }
        self.judge_opening(self.counted() >= count, told, now)
    }

    fn judge_waiter(
        &mut self,
        request: &AcquireRequest,
        outcome: &Acquired,
        now: Moment,
    ) -> Verdict {
        let is_open = self.counted() >= request.shape.limit();
        let is_let_in = matches!(outcome, Acquired::Granted(_));
        ensure(is_open || !is_let_in, "I1: let through a latch that was not open")?;
        ensure(!is_open || is_let_in, "kept out of an open latch")?;
        if is_open { Ok(()) } else { self.judge_queued(request, outcome, now) }
    }

    /// All live waiters are told, each once, in order of arrival; or nobody.
    fn judge_opening(
        &mut self,
        is_open: bool,
        told: &[(Entry, std::time::Duration)],
        now: Moment,
    ) -> Verdict {
        if !is_open {
            return ensure(told.is_empty(), "I1: somebody was let through too early");
        }
        let waiting = std::mem::take(&mut self.queue).into_iter();
        let living = waiting.filter(|waiting| waiting.alive_until > now).map(|it| it.entry);
        let is_right = living.eq(told.iter().map(|(entry, _)| *entry));
        ensure(is_right, "I10: not exactly those who waited were told, in their order")
    }

    /// It opens for all who wait and the one who comes, and for nobody else.
    pub(super) fn judge_barrier(
        &mut self,
        request: &AcquireRequest,
        outcome: &Acquired,
        told: &[(Entry, std::time::Duration)],
        now: Moment,
    ) -> Verdict {
        let entry = request.entry;
        if self.is_inside(entry.owner) {
            ensure(told.is_empty(), "I5: who is through already opened it again")?;
            return self.judge_again(request, outcome, now);
        }
        let is_waiting = self.queue.iter().any(|waiting| waiting.entry == entry);
        if is_waiting || request.queue.is_none() {
            ensure(told.is_empty(), "I1: opened by one who does not come to wait")?;
            return self.judge_queued(request, outcome, now);
        }
        self.queue.retain(|waiting| waiting.alive_until > now);
        if self.queue.len() + 1 < request.shape.limit() as usize {
            let is_let_in = matches!(outcome, Acquired::Granted(_));
            ensure(!is_let_in && told.is_empty(), "I1: opened before all were there")?;
            return self.judge_queued(request, outcome, now);
        }
        ensure(matches!(outcome, Acquired::Granted(_)), "the last one was kept out")?;
        self.let_through(told, now)?;
        self.stay(entry, 1, now + request.lease.duration());
        Ok(())
    }

    /// Those of one owner come along with the first of them.
    fn let_through(&mut self, told: &[(Entry, std::time::Duration)], now: Moment) -> Verdict {
        let mut waiting: Vec<_> = self.queue.drain(..).map(|waiting| waiting.entry).collect();
        let mut expected = Vec::new();
        while !waiting.is_empty() {
            let first = waiting[0];
            expected.extend(waiting.extract_if(.., |entry| entry.owner == first.owner));
        }
        let is_right = expected.iter().eq(told.iter().map(|(entry, _)| entry));
        ensure(is_right, "I10: not exactly those who waited were told, in their order")?;
        told.iter().for_each(|&(entry, lease)| self.stay(entry, 1, now + lease));
        Ok(())
    }

    /// Who is inside is told so, whatever it asks for, and is not counted again.
    fn judge_again(
        &mut self,
        request: &AcquireRequest,
        outcome: &Acquired,
        now: Moment,
    ) -> Verdict {
        let Entry { owner, number } = request.entry;
        ensure(matches!(outcome, Acquired::Granted(_)), "I5: asked again, and was kept out")?;
        self.queue.retain(|waiting| waiting.entry != request.entry);
        self.extend(owner, now + request.lease.duration());
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
        let place = self.queue.iter_mut().find(|waiting| waiting.entry == request.entry);
        let waits = place.is_some() || request.queue.is_some();
        let is_right = match outcome {
            Acquired::Queued(_) => waits,
            Acquired::Busy => !waits,
            _ => false,
        };
        ensure(is_right, "I1: let through, or neither queued nor refused")?;
        let Some(queueing) = request.queue else { return Ok(()) };
        let alive_until = now + queueing.heartbeat;
        match place {
            Some(waiting) => waiting.alive_until = waiting.alive_until.max(alive_until),
            None => self.queue.push(Waiting { entry: request.entry, alive_until }),
        }
        Ok(())
    }

    pub(super) fn extend(&mut self, owner: Owner, until: Moment) -> bool {
        let stay = self.inside(owner);
        stay.map(|stay| stay.until = stay.until.max(until)).is_some()
    }

    /// Ends an entry, or gives back permits; whether there was such an entry.
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

    /// Takes it from all, or from one; how many lost it.
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
