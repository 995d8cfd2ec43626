//! Counts forks. `unsafe` is allowed here, for a page of memory and one call of the C library.
//!
//! The pid of a child is not a reliable test: a container's first process and one that it forks into a new PID
//! namespace both have pid 1. And reading it is a system call, several in each acquire. So
//! there is a word in memory that is zero in a new child: the kernel zeroes its page (`MADV_WIPEONFORK`),
//! however the child is made, or, without such a page, a handler of the C library resets it.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The word's values: a process that has not checked yet, one that is being counted, and one that was counted.
const NEW: u32 = 0;
const BEING_COUNTED: u32 = 1;
const COUNTED: u32 = 2;

/// How many processes were counted, from the first one to this one.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// The word, if the page cannot be mapped.
static PLAIN_WORD: AtomicU32 = AtomicU32::new(NEW);

/// The address of the word; null until the first check.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// A number that differs in every forked child.
pub(crate) fn count() -> u64 {
    let word = word();
    if word.load(Ordering::Acquire) != COUNTED {
        count_this(word);
    }
    SEEN.load(Ordering::Relaxed)
}

/// Counts a process once, even if several of its threads check at the same time. A child that is forked
/// meanwhile starts again from zero, and so waits for no thread that it does not have.
#[cold]
fn count_this(word: &AtomicU32) {
    loop {
        match word.compare_exchange(NEW, BEING_COUNTED, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => {
                SEEN.fetch_add(1, Ordering::Relaxed);
                word.store(COUNTED, Ordering::Release);
                return;
            }
            Err(COUNTED) => return,
            Err(_) => std::hint::spin_loop(),
        }
    }
}

#[expect(unsafe_code, reason = "the word may be in a page that the kernel gave us")]
fn word() -> &'static AtomicU32 {
    let mut word = WORD.load(Ordering::Acquire);
    if word.is_null() {
        word = place_word();
    }
    // SAFETY: it points to the static word or to one in a page that is never unmapped. It is aligned, and
    // holds zero or a value that was stored in it; both are only ever used as atomics.
    unsafe { &*word }
}

/// Chooses the address of the word. Without a mutex, for the same reason as above: of several threads, one
/// wins, and the pages of the others stay unused.
#[cold]
fn place_word() -> *mut AtomicU32 {
    let ours = wiped_page().unwrap_or_else(|| {
        watch();
        (&raw const PLAIN_WORD).cast_mut()
    });
    let placed =
        WORD.compare_exchange(std::ptr::null_mut(), ours, Ordering::AcqRel, Ordering::Acquire);
    match placed {
        Ok(_) => ours,
        Err(theirs) => theirs,
    }
}

/// A page that is all zero in a new child. None on a kernel older than Linux 4.14, and on other systems.
#[cfg(not(target_os = "linux"))]
fn wiped_page() -> Option<*mut AtomicU32> {
    None
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "only the kernel can zero a page in a forked child")]
fn wiped_page() -> Option<*mut AtomicU32> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
    let (length, access) = (rustix::param::page_size(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping at an address that the kernel chooses; nothing else knows of it.
    unsafe {
        let page = mmap_anonymous(std::ptr::null_mut(), length, access, MapFlags::PRIVATE).ok()?;
        madvise(page, length, Advice::LinuxWipeOnFork).ok()?;
        Some(page.cast())
    }
}

/// Makes the C library call `in_child` in every child that it forks.
#[expect(unsafe_code, reason = "only the C library can call a function in a forked child")]
fn watch() {
    // SAFETY: the handler is a function that lives as long as the program, and only stores an atomic
    // number, which is allowed in a child of a process with several threads.
    let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    // It fails only if memory is exhausted, and there is no alternative.
    debug_assert_eq!(failed, 0);
}

extern "C" fn in_child() {
    PLAIN_WORD.store(NEW, Ordering::Relaxed);
}
