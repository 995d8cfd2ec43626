//! A full store: no new locks or waiters, but every release succeeds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::Tenure;
use crate::blocking::block_on;
use crate::core::lease::Lease;
use crate::core::name::LockName;
use crate::core::shape::{Kind, Shape};
use crate::engine::local::LocalEngine;
use crate::engine::{
    AcquireRequest, Acquired, CancelRequest, Engine, Queueing, ReleaseOutcome, ReleaseRequest,
    Renewal, Renewed,
};
use crate::error::StoreError;
use crate::info::About;
use crate::owner::{Entry, Owner};

const MAP: usize = 1 << 20;

fn small(bytes: usize) -> (tempfile::TempDir, LocalEngine) {
    let around = tempfile::tempdir().unwrap();
    let engine = LocalEngine::open_sized(&around.path().join("t"), bytes).unwrap();
    (around, engine)
}

/// A holder or a waiter.
#[derive(Clone, Debug)]
struct Participant {
    name: LockName,
    entry: Entry,
}

fn acquire_or_queue(
    engine: &LocalEngine,
    name: &str,
    lease: Lease,
) -> Result<(Participant, Acquired), StoreError> {
    let name = LockName::new(name).unwrap();
    let entry = Entry { owner: Owner::new(), number: 0 };
    let minute = Duration::from_secs(60);
    let request = AcquireRequest {
        name: name.clone(),
        entry,
        shape: Shape::new(Kind::Mutex, 1, 1).unwrap(),
        lease,
        about: Arc::new(About::this_process()),
        queue: Some(Queueing { heartbeat: minute, claim: minute, fences: 1 }),
        proposal: None,
    };
    Ok((Participant { name, entry }, block_on(engine.acquire(request))?))
}

fn release(engine: &LocalEngine, participant: &Participant) -> ReleaseOutcome {
    block_on(engine.release(ReleaseRequest::new(participant.name.clone(), participant.entry)))
        .unwrap()
}

fn assert_is_full(error: &StoreError) {
    assert!(!error.is_unknown());
    assert!(error.to_string().contains("is full: its quota"), "{error}");
}

#[test]
fn a_full_store_takes_no_more_and_every_release_succeeds() {
    let (_around, engine) = small(MAP);
    for round in 0..3 {
        let mut participants = Vec::new();
        let full = loop {
            match acquire_or_queue(
                &engine,
                &format!("{round}/{}", participants.len()),
                Lease::DEFAULT,
            ) {
                Ok((participant, _)) => participants.push(participant),
                Err(error) => break error,
            }
        };
        assert_is_full(&full);
        assert_is_full(
            &acquire_or_queue(&engine, participants[0].name.as_str(), Lease::DEFAULT).unwrap_err(),
        );
        for participant in &participants {
            let (name, entry) = (participant.name.clone(), participant.entry);
            let renewal = Renewal { name, entry, lease: Lease::DEFAULT, commit: None };
            let renewed = block_on(engine.renew(vec![renewal])).unwrap().remove(0);
            assert_eq!(renewed.unwrap(), Renewed::Extended);
        }
        for participant in &participants {
            assert_eq!(release(&engine, participant), ReleaseOutcome::Released { remaining: 0 });
        }
    }
}

/// A lock with many waiters is one long record, which is written as a whole.
#[test]
fn every_waiter_can_leave_a_queue_that_is_too_long() {
    let (_around, engine) = small(MAP / 2);
    let (holder, _) = acquire_or_queue(&engine, "x", Lease::DEFAULT).unwrap();
    let mut waiters = VecDeque::new();
    let full = loop {
        match acquire_or_queue(&engine, "x", Lease::DEFAULT) {
            Ok((participant, _)) => waiters.push_back(participant),
            Err(error) => break error,
        }
    };
    assert_is_full(&full);
    println!("{} waiters", waiters.len());
    // Other locks are still granted, until they fill the store.
    let mut number = 0;
    while acquire_or_queue(&engine, &format!("other/{number}"), Lease::DEFAULT).is_ok() {
        number += 1;
    }
    assert!(number > 100, "{number}");
    let mut next = Some(holder);
    while let Some(participant) = next {
        release(&engine, &participant);
        next = waiters.pop_front();
        if let Some(last) = waiters.pop_back() {
            block_on(engine.cancel(CancelRequest { name: last.name, entry: last.entry })).unwrap();
        }
    }
    assert!(acquire_or_queue(&engine, "x", Lease::DEFAULT).is_ok(), "the quota is free again");
}

/// Pages are freed here and there, so that the free space is fragmented.
#[test]
fn releases_succeed_in_a_fragmented_store_at_its_limit() {
    let (_around, engine) = small(MAP);
    let mut participants: Vec<Participant> = Vec::new();
    let (mut chance, mut refused) = (1_u32, 0);
    for step in 0..30_000 {
        chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let random = (chance >> 8) as usize;
        if random.is_multiple_of(3000) && !participants.is_empty() {
            for _ in 0..participants.len() / 4 {
                cancel(&engine, &participants.swap_remove(random % participants.len()));
            }
        }
        if random.is_multiple_of(3) && !participants.is_empty() {
            cancel(&engine, &participants.swap_remove(random % participants.len()));
            continue;
        }
        // A third of them wait for one of five locks; the others have names of all lengths.
        let name = match random % 9 {
            0..3 => format!("queue/{}", random % 5),
            _ => format!("{step}/{}", "x".repeat(random % 450)),
        };
        match acquire_or_queue(&engine, &name, Lease::DEFAULT) {
            Ok((participant, _)) => participants.push(participant),
            Err(error) => {
                assert_is_full(&error);
                refused += 1;
            }
        }
    }
    assert!(refused > 1000, "{refused} were refused: it was never full");
    participants.iter().for_each(|participant| cancel(&engine, participant));
    let tenure = Tenure::builder().engine(engine).unwrap();
    assert!(block_on(tenure.list("", 10)).unwrap().is_empty());
}

/// Ends a hold or a wait, whichever it is.
fn cancel(engine: &LocalEngine, participant: &Participant) {
    let Participant { name, entry } = participant.clone();
    block_on(engine.cancel(CancelRequest { name, entry })).unwrap();
}

/// Rule 12: the remains of dead clients do not exclude live ones.
#[test]
fn a_full_store_is_swept_of_locks_that_are_not_in_use() {
    // So long that the store is full before the number of records starts a sweep.
    let name = |number| format!("{number:0>450}");
    let (_around, engine) = small(MAP);
    let fit = (0..)
        .take_while(|&number| acquire_or_queue(&engine, &name(number), Lease::DEFAULT).is_ok());
    let fit = fit.count();
    let (_around, engine) = small(MAP);
    let short = Lease::new(Duration::from_millis(10)).unwrap();
    (0..fit).for_each(|number| drop(acquire_or_queue(&engine, &name(number), short).unwrap()));
    pass(short.duration());
    // Not all of them: where records were removed here and there, pages are not full.
    for number in fit..fit + fit / 10 * 9 {
        let acquired = acquire_or_queue(&engine, &name(number), Lease::DEFAULT);
        assert!(acquired.is_ok(), "{} of {fit}", number - fit);
    }
}

#[expect(clippy::disallowed_methods, reason = "only time is to pass")]
fn pass(time: Duration) {
    std::thread::sleep(time);
}
