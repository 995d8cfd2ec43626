//! A full store: nobody comes in, and everybody can leave.

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

/// Whoever has the lock, or waits for it.
#[derive(Clone, Debug)]
struct Place {
    name: LockName,
    entry: Entry,
}

fn enter(engine: &LocalEngine, name: &str, lease: Lease) -> Result<(Place, Acquired), StoreError> {
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
    };
    Ok((Place { name, entry }, block_on(engine.acquire(request))?))
}

fn release(engine: &LocalEngine, place: &Place) -> ReleaseOutcome {
    block_on(engine.release(ReleaseRequest::new(place.name.clone(), place.entry))).unwrap()
}

fn assert_is_full(trouble: &StoreError) {
    assert!(!trouble.is_unknown());
    assert!(trouble.to_string().contains("is full: it has room for"), "{trouble}");
}

#[test]
fn a_full_store_takes_no_more_and_lets_everyone_leave() {
    let (_around, engine) = small(MAP);
    for round in 0..3 {
        let mut places = Vec::new();
        let full = loop {
            match enter(&engine, &format!("{round}/{}", places.len()), Lease::DEFAULT) {
                Ok((place, _)) => places.push(place),
                Err(trouble) => break trouble,
            }
        };
        assert_is_full(&full);
        assert_is_full(&enter(&engine, places[0].name.as_str(), Lease::DEFAULT).unwrap_err());
        for place in &places {
            let (name, owner) = (place.name.clone(), place.entry.owner);
            let renewal = Renewal { name, owner, lease: Lease::DEFAULT };
            let renewed = block_on(engine.renew(vec![renewal])).unwrap().remove(0);
            assert_eq!(renewed.unwrap(), Renewed::Extended);
        }
        for place in &places {
            assert_eq!(release(&engine, place), ReleaseOutcome::Released { remaining: 0 });
        }
    }
}

/// A lock with many waiters is one long record, which is written as a whole.
#[test]
fn a_queue_that_is_too_long_lets_everyone_leave() {
    let (_around, engine) = small(MAP / 2);
    let (holder, _) = enter(&engine, "x", Lease::DEFAULT).unwrap();
    let mut waiters = VecDeque::new();
    let full = loop {
        match enter(&engine, "x", Lease::DEFAULT) {
            Ok((place, _)) => waiters.push_back(place),
            Err(trouble) => break trouble,
        }
    };
    assert_is_full(&full);
    println!("{} waiters", waiters.len());
    // Other locks still come, until they fill the store.
    let mut number = 0;
    while enter(&engine, &format!("other/{number}"), Lease::DEFAULT).is_ok() {
        number += 1;
    }
    assert!(number > 100, "{number}");
    let mut guard = Some(holder);
    while let Some(place) = guard {
        release(&engine, &place);
        guard = waiters.pop_front();
        if let Some(last) = waiters.pop_back() {
            block_on(engine.cancel(CancelRequest { name: last.name, entry: last.entry })).unwrap();
        }
    }
    assert!(enter(&engine, "x", Lease::DEFAULT).is_ok(), "there is room again");
}

/// Pages are freed here and there, so that what is free lies in pieces.
#[test]
fn coming_and_going_at_the_mark_keeps_the_way_out() {
    let (_around, engine) = small(MAP);
    let mut places: Vec<Place> = Vec::new();
    let (mut chance, mut refused) = (1_u32, 0);
    for step in 0..30_000 {
        chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let random = (chance >> 8) as usize;
        if random.is_multiple_of(3000) && !places.is_empty() {
            for _ in 0..places.len() / 4 {
                leave(&engine, &places.swap_remove(random % places.len()));
            }
        }
        if random.is_multiple_of(3) && !places.is_empty() {
            leave(&engine, &places.swap_remove(random % places.len()));
            continue;
        }
        // A third of them wait for one of five locks; the others have names of all lengths.
        let name = match random % 9 {
            0..3 => format!("queue/{}", random % 5),
            _ => format!("{step}/{}", "x".repeat(random % 450)),
        };
        match enter(&engine, &name, Lease::DEFAULT) {
            Ok((place, _)) => places.push(place),
            Err(trouble) => {
                assert_is_full(&trouble);
                refused += 1;
            }
        }
    }
    assert!(refused > 1000, "{refused} were refused: it was never full");
    places.iter().for_each(|place| leave(&engine, place));
    let tenure = Tenure::builder().engine(engine).unwrap();
    assert!(block_on(tenure.list("", 10)).unwrap().is_empty());
}

/// As whoever waits or holds does it, without knowing which.
fn leave(engine: &LocalEngine, place: &Place) {
    let Place { name, entry } = place.clone();
    block_on(engine.cancel(CancelRequest { name, entry })).unwrap();
}

/// Rule 12: what is left of the dead does not keep out the living.
#[test]
fn a_full_store_is_searched_for_what_nobody_needs() {
    // So long that it is full before their number alone is reason to look.
    let name = |number| format!("{number:0>450}");
    let (_around, engine) = small(MAP);
    let fit = (0..).take_while(|&number| enter(&engine, &name(number), Lease::DEFAULT).is_ok());
    let fit = fit.count();
    let (_around, engine) = small(MAP);
    let short = Lease::new(Duration::from_millis(10)).unwrap();
    (0..fit).for_each(|number| drop(enter(&engine, &name(number), short).unwrap()));
    pass(short.duration());
    // Not to the last: where some are forgotten here and there, pages are not full.
    for number in fit..fit + fit / 10 * 9 {
        let entered = enter(&engine, &name(number), Lease::DEFAULT);
        assert!(entered.is_ok(), "{} of {fit}", number - fit);
    }
}

#[expect(clippy::disallowed_methods, reason = "only time is to pass")]
fn pass(time: Duration) {
    std::thread::sleep(time);
}
