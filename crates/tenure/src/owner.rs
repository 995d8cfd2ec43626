//! The owner of a hold. Identity is a value, not a thread.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::str::FromStr;

use crate::error::Invalid;
use crate::fork;

/// The identity of a holder: unique across processes and machines. It is a plain value, so it can be
/// printed, sent elsewhere and parsed.
///
/// By default every acquire is an owner of its own. A re-entrant lock uses the owner of the surrounding
/// [`Owner::scope`], or the one set with [`Lock::owner`](crate::Lock::owner). A value is the same in a
/// forked child: an owner that was made before a fork and is used after it identifies both processes.
///
/// # Examples
///
/// ```
/// use tenure::Owner;
///
/// let owner = Owner::new();
/// let elsewhere: Owner = owner.to_string().parse()?;
/// assert_eq!(owner, elsewhere);
/// # Ok::<(), tenure::Invalid>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    // Two halves rather than a u128, whose alignment would pad everything that holds an owner.
    high: u64,
    low: u64,
}

/// The bits of an owner that count within one thread; the 80 above them are random, and differ in a forked
/// child.
const COUNTER: u128 = (1 << 48) - 1;

impl Owner {
    /// Creates a new, unique owner.
    #[expect(clippy::new_without_default, reason = "two defaults would not be equal")]
    pub fn new() -> Self {
        let forks = fork::count();
        let counted = SERIES.try_with(|series| {
            let (of, mut next) = series.get();
            if of != Some(forks) || next & COUNTER == COUNTER {
                next = random_bits() & !COUNTER;
            }
            series.set((Some(forks), next + 1));
            next
        });
        // The thread is ending, and its thread-locals are destroyed: use random bits alone.
        Self::from_value(counted.unwrap_or_else(|_| random_bits()))
    }

    /// Runs `future` with this owner as [`Owner::current`], on any executor and across all of its awaits.
    /// Tasks that it spawns do not inherit the owner: run them in a scope of their own.
    ///
    /// # Cancel safety
    /// As safe as `future` itself.
    pub async fn scope<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            let _outer = Entered(CURRENT.replace(Some(self)));
            future.as_mut().poll(context)
        })
        .await
    }

    /// Returns the owner of the innermost [`Owner::scope`] being polled on this thread, if any.
    pub fn current() -> Option<Self> {
        CURRENT.get()
    }

    /// Returns the owner of the calling thread, which is the same for as long as the thread lives. It
    /// differs in a forked child.
    pub fn of_thread() -> Self {
        let forks = fork::count();
        let known = THREAD.get().filter(|(of, _)| *of == forks);
        let (_, owner) = known.unwrap_or_else(|| (forks, Self::new()));
        THREAD.set(Some((forks, owner)));
        owner
    }

    pub(crate) const fn from_value(value: u128) -> Self {
        Self { high: (value >> 64) as u64, low: value as u64 }
    }

    pub(crate) const fn value(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }
}

thread_local! {
    static CURRENT: Cell<Option<Owner>> = const { Cell::new(None) };
    /// The owner of this thread, and the fork count when it was made.
    static THREAD: Cell<Option<(u64, Owner)>> = const { Cell::new(None) };
    /// The next owner that this thread makes, and the fork count when it started to count.
    static SERIES: Cell<(Option<u64>, u128)> = const { Cell::new((None, 0)) };
}

/// Restores the outer owner, also if the poll panics.
struct Entered(Option<Owner>);

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Random bits from the operating system.
fn random_bits() -> u128 {
    #[cfg(all(test, feature = "redis", unix))]
    if let Some(bits) = crate::simulation::random_bits() {
        return bits;
    }
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system provides random numbers");
    u128::from_le_bytes(bytes)
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.value())
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({self})")
    }
}

impl FromStr for Owner {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u128::from_str_radix(text, 16) {
            Ok(value) if is_hex => Ok(Self::from_value(value)),
            _ => Err(Invalid::new("an owner is written as 32 hexadecimal digits")),
        }
    }
}

/// One entry of an owner into a lock.
///
/// A re-entrant owner enters several times. Each entry has its own number, so that an entry
/// sent twice counts once, and one released twice is released once (I5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The owner.
    pub owner: Owner,
    /// Which of the owner's entries this is. Zero where the owner enters only once.
    pub number: u64,
}

impl Entry {
    /// The only entry of a new owner.
    pub(crate) fn single() -> Self {
        Self { owner: Owner::new(), number: 0 }
    }

    /// A new entry of an owner that may have others, here or in another process.
    pub(crate) fn again(owner: Owner) -> Self {
        Self { owner, number: unique_number().max(1) }
    }
}

/// A unique number: the thread's random bits mixed into a count.
pub(crate) fn unique_number() -> u64 {
    let fresh = Owner::new();
    fresh.low ^ fresh.high.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_unique_and_survive_being_printed() {
        let (a, b) = (Owner::new(), Owner::new());
        assert_ne!(a, b);
        assert_eq!(a.to_string().parse::<Owner>().unwrap(), a);
        for bad in ["", "12", "+0000000000000000000000000000001", &"g".repeat(32)] {
            assert!(bad.parse::<Owner>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_scope_ends_with_its_poll_and_nests() {
        let (outer, inner) = (Owner::new(), Owner::new());
        crate::blocking::block_on(outer.scope(async {
            assert_eq!(Owner::current(), Some(outer));
            inner.scope(async { assert_eq!(Owner::current(), Some(inner)) }).await;
            assert_eq!(Owner::current(), Some(outer));
        }));
        assert_eq!(Owner::current(), None);
    }

    #[test]
    fn a_thread_keeps_its_owner_and_shares_it_with_none() {
        let mine = Owner::of_thread();
        assert_eq!(Owner::of_thread(), mine);
        assert_ne!(std::thread::spawn(Owner::of_thread).join().unwrap(), mine);
    }
}
