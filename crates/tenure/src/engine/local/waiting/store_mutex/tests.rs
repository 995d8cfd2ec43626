//! Who waits for the turn, and who is refused.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

fn mutex() -> (tempfile::TempDir, StoreMutex) {
    let folder = tempfile::tempdir().unwrap();
    let mutex = StoreMutex::open(folder.path()).unwrap();
    (folder, mutex)
}

/// As long as others get on, the store is only busy.
#[test]
fn a_busy_store_is_waited_for() {
    let (_folder, mutex) = mutex();
    let (changes, is_moving) = (AtomicUsize::new(0), AtomicBool::new(true));
    let last_change = || {
        let is_moving = is_moving.load(Ordering::Relaxed);
        changes.fetch_add(usize::from(is_moving), Ordering::Relaxed)
    };
    let guard = mutex.take(Patience::Short, last_change).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| mutex.take(Patience::Short, last_change).map(drop));
        pass(Patience::Short.time() * 4);
        assert!(!waiter.is_finished(), "it was refused in 200 ms, or had a guard that is taken");
        drop(guard);
        waiter.join().unwrap().unwrap();
    });
    let _turn = mutex.take(Patience::Short, last_change).unwrap();
    let crowded = mutex.take(Patience::Short, last_change).map(drop).unwrap_err();
    assert!(crowded.to_string().contains("the store is busy"), "{crowded}");
    is_moving.store(false, Ordering::Relaxed);
    let stuck = mutex.take(Patience::Short, last_change).map(drop).unwrap_err().to_string();
    assert!(stuck.contains("another thread of this process stands in the middle"), "{stuck}");
}

/// Others have turns that change nothing, one after the other: they get on, and nobody is stuck.
#[test]
fn turns_that_change_nothing_are_seen() {
    let (folder, mutex) = mutex();
    let other = StoreMutex::open(folder.path()).unwrap();
    let before = other.count();
    drop(mutex.take(Patience::Short, || 7).unwrap());
    assert_eq!(other.count(), before + 1);
    let mut changing = mutex.take(Patience::Short, || 7).unwrap();
    changing.is_seen_by_its_change();
    drop(changing);
    assert_eq!(other.count(), before + 1, "whoever changes something writes no further number");
    let _turn = mutex.take(Patience::Short, || 7).unwrap();
    // As if another process had a turn before every look.
    let another_turn = || {
        let count = other.count() + 1;
        other.file.write_all_at(&count.to_le_bytes(), 0).unwrap();
        7
    };
    let refused = mutex.take(Patience::Short, another_turn).map(drop).unwrap_err().to_string();
    assert!(refused.contains("the store is busy"), "{refused}");
}

/// Nobody waits for what another was just refused, until something changes or the turn is free.
#[test]
fn what_is_known_to_stand_still_is_not_waited_for_again() {
    let (_folder, mutex) = mutex();
    let refused_after = |change| {
        let begun = clock::now();
        assert!(mutex.take(Patience::Short, || change).is_err());
        clock::now().since(begun)
    };
    let guard = mutex.take(Patience::Short, || 7).unwrap();
    assert!(refused_after(7) >= Patience::Short.time());
    assert!(refused_after(7) < Patience::Short.time() / 2);
    assert!(refused_after(8) >= Patience::Short.time(), "there was a change");
    drop(guard);
    drop(mutex.take(Patience::Short, || 8).unwrap());
}

/// What is wrong with the file is told as such, and nobody is blamed for it.
#[test]
fn a_file_that_cannot_be_locked_is_told() {
    let (folder, mut mutex) = mutex();
    mutex.file = File::open(folder.path().join("mutex")).unwrap();
    let told = mutex.take(Patience::Long, || 0).map(drop).unwrap_err().to_string();
    assert!(told.contains("cannot be used: Bad file descriptor"), "{told}");
}

/// Whoever was stopped has not seen what others did meanwhile.
#[test]
fn who_was_stopped_itself_accuses_nobody() {
    let begun = Moment::from_micros(0);
    let mut backoff = Backoff::begin(begun, 7);
    backoff.look(begun + Duration::from_secs(5), 7);
    assert!(backoff.still() < Patience::Short.time());
    assert!(backoff.waited() < LONGEST);
}

#[expect(clippy::disallowed_methods, reason = "only time is to pass")]
fn pass(time: Duration) {
    std::thread::sleep(time);
}
