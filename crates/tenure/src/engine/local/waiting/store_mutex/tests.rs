//! Which threads wait for the store's mutex, and which are refused.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

fn mutex() -> (tempfile::TempDir, StoreMutex) {
    let folder = tempfile::tempdir().unwrap();
    let mutex = StoreMutex::open(folder.path()).unwrap();
    (folder, mutex)
}

/// As long as other operations make progress, the store is only busy.
#[test]
fn a_busy_store_is_waited_for() {
    let (_folder, mutex) = mutex();
    let (changes, has_progress) = (AtomicUsize::new(0), AtomicBool::new(true));
    let last_change = || {
        let has_progress = has_progress.load(Ordering::Relaxed);
        changes.fetch_add(usize::from(has_progress), Ordering::Relaxed)
    };
    let guard = mutex.acquire(Patience::Short, last_change).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| mutex.acquire(Patience::Short, last_change).map(drop));
        pass(Patience::Short.stall_limit() * 4);
        assert!(
            !waiter.is_finished(),
            "it was refused within 200 ms, or has locked a locked mutex"
        );
        drop(guard);
        waiter.join().unwrap().unwrap();
    });
    let _guard = mutex.acquire(Patience::Short, last_change).unwrap();
    let busy = mutex.acquire(Patience::Short, last_change).map(drop).unwrap_err();
    assert!(busy.to_string().contains("the store is busy"), "{busy}");
    has_progress.store(false, Ordering::Relaxed);
    let stalled = mutex.acquire(Patience::Short, last_change).map(drop).unwrap_err().to_string();
    assert!(stalled.contains("has been held by another thread of this process for"), "{stalled}");
}

/// Other processes perform operations that change nothing: this is progress, and not a stall.
#[test]
fn operations_that_change_nothing_count_as_progress() {
    let (folder, mutex) = mutex();
    let other = StoreMutex::open(folder.path()).unwrap();
    let before = other.unchanged_count();
    drop(mutex.acquire(Patience::Short, || 7).unwrap());
    assert_eq!(other.unchanged_count(), before + 1);
    let mut changing = mutex.acquire(Patience::Short, || 7).unwrap();
    changing.mark_changed();
    drop(changing);
    assert_eq!(other.unchanged_count(), before + 1, "a change needs no counter");
    let _guard = mutex.acquire(Patience::Short, || 7).unwrap();
    // As if another process performed an operation before every poll.
    let another_operation = || {
        let count = other.unchanged_count() + 1;
        other.file.write_all_at(&count.to_le_bytes(), 0).unwrap();
        7
    };
    let refused =
        mutex.acquire(Patience::Short, another_operation).map(drop).unwrap_err().to_string();
    assert!(refused.contains("the store is busy"), "{refused}");
}

/// A thread does not wait for a stall that was just reported to another one, unless there is progress or the mutex is
/// free.
#[test]
fn a_known_stall_is_not_waited_for_again() {
    let (_folder, mutex) = mutex();
    let refused_after = |change| {
        let begun = clock::now();
        assert!(mutex.acquire(Patience::Short, || change).is_err());
        clock::now().since(begun)
    };
    let guard = mutex.acquire(Patience::Short, || 7).unwrap();
    assert!(refused_after(7) >= Patience::Short.stall_limit());
    assert!(refused_after(7) < Patience::Short.stall_limit() / 2);
    assert!(refused_after(8) >= Patience::Short.stall_limit(), "there was a change");
    drop(guard);
    drop(mutex.acquire(Patience::Short, || 8).unwrap());
}

/// An error of the file is reported as such, and not as a stall of another process.
#[test]
fn a_file_that_cannot_be_locked_is_reported() {
    let (folder, mut mutex) = mutex();
    mutex.file = File::open(folder.path().join("mutex")).unwrap();
    let refused = mutex.acquire(Patience::Long, || 0).map(drop).unwrap_err().to_string();
    assert!(refused.contains("cannot be used: Bad file descriptor"), "{refused}");
}

/// A process that was stopped has not observed what other processes did meanwhile.
#[test]
fn a_process_that_was_stopped_itself_reports_no_stall() {
    let begun = Moment::from_micros(0);
    let mut backoff = Backoff::new(begun, 7);
    backoff.poll(begun + Duration::from_secs(5), 7);
    assert!(backoff.stalled() < Patience::Short.stall_limit());
    assert!(backoff.waited() < MAX_WAIT);
}

#[expect(clippy::disallowed_methods, reason = "only time is to pass")]
fn pass(time: Duration) {
    std::thread::sleep(time);
}
