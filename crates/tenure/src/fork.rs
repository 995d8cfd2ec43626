//! Noticing that this process is a forked child. `unsafe` is allowed here, for a page of memory and one
//! call of the C library.
//!
//! A child has its parent's memory, but none of its threads, and no right to what its parent holds. Its
//! pid does not tell for certain: a container's first process and one that it forks into a new PID
//! namespace both have the number 1. And asking for it is a system call, several in each acquire. So
//! there is a word in memory that is zero in a new child: the kernel empties its page (`MADV_WIPEONFORK`),
//! however the child is made, or, where there is no such page, a handler of the C library sets it.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// In the word: a child that has not looked yet, one that is being counted, and one that was counted.
const NEW: u32 = 0;
const BEING_COUNTED: u32 = 1;
const COUNTED: u32 = 2;

/// Processes that were seen to be new, from the first that looked to this one.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// The word, where no page can be had.
static PLAIN_WORD: AtomicU32 = AtomicU32::new(NEW);

/// Where the word is; null until the first look.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// A number that is another one in every forked child.
pub(crate) fn count() -> u64 {
    let word = word();
    if word.load(Ordering::Acquire) != COUNTED {
        count_this(word);
    }
    SEEN.load(Ordering::Relaxed)
}

/// Counts a process once, though several of its threads look. A child that is forked in the middle of it
/// starts again from zero, and so waits for no thread that it does not have.
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
    // SAFETY: it points to the static word or to one in a page that is never unmapped, which is aligned,
    // and all zero or what was stored in it; both are only ever used as atomics.
    unsafe { &*word }
}

/// Finds a place for the word. Without a lock, for the same reason as above: of several threads, one wins,
/// and the pages of the others stay unused.
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

/// A page that is all zero in a new child. Not where the kernel is older than Linux 4.14.
#[expect(unsafe_code, reason = "only the kernel can empty a page in a forked child")]
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

/// Has the C library call `in_child` in every child that is forked by its means.
#[expect(unsafe_code, reason = "only the C library can call something in a forked child")]
fn watch() {
    // SAFETY: the handler is a function that lives as long as the program, and all it does is to set an
    // atomic number, which is allowed in a child of a process with several threads.
    let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    // Out of memory; there is no third way.
    debug_assert_eq!(failed, 0);
}

extern "C" fn in_child() {
    PLAIN_WORD.store(NEW, Ordering::Relaxed);
}

/// The process in which something was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u64);

impl Process {
    /// This one.
    pub(crate) fn this() -> Self {
        Self(count())
    }

    /// Whether this is a child of it.
    pub(crate) fn is_left(self) -> bool {
        self != Self::this()
    }
}
