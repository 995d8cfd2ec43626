//! The other kinds of lock, for code that is not async.

use std::time::Duration;

use super::{Guard, Lock, as_thread, block_on};
use crate::election::{Leader, Leadership};
use crate::error::Error;
use crate::guard::Released;
use crate::info::LockInfo;
use crate::wait::Wait;

/// A mirror of a type whose methods return values that need no mirror of their own.
macro_rules! mirror {
    ($name:ident { $(fn $method:ident($($argument:ident: $type:ty)?) -> $output:ty;)+ }) => {
        #[doc = concat!("Like [`crate::", stringify!($name), "`], but for code that is not async.")]
        #[derive(Clone, Debug)]
        pub struct $name(crate::$name);

        impl $name {
            pub(crate) fn new(inner: crate::$name) -> Self {
                Self(inner)
            }

            $(
                #[doc = concat!(
                    "Like [`crate::", stringify!($name), "::", stringify!($method), "`], but parks ",
                    "the calling thread.\n\n# Errors\nAs there."
                )]
                pub fn $method(&self $(, $argument: $type)?) -> Result<$output, Error> {
                    as_thread(self.0.$method($($argument)?))
                }
            )+
        }
    };
}

mirror! {
    Latch {
        fn set_count() -> ();
        fn count_down() -> ();
        fn wait() -> ();
        fn wait_within(time: Duration) -> ();
        fn count() -> u32;
        fn inspect() -> LockInfo;
    }
}

mirror! {
    Barrier {
        fn wait() -> ();
        fn wait_within(time: Duration) -> ();
        fn inspect() -> LockInfo;
    }
}

mirror! {
    Election {
        fn campaign() -> Leadership;
        fn campaign_within(time: Duration) -> Leadership;
        fn try_campaign() -> Option<Leadership>;
        fn leader() -> Option<Leader>;
    }
}

/// A read-write lock for code that is not async. The calling thread is the owner.
#[derive(Clone, Debug)]
pub struct RwLock(crate::RwLock);

impl RwLock {
    pub(crate) fn new(inner: crate::RwLock) -> Self {
        Self(inner)
    }

    /// Returns the read side as a [`Lock`], with all its methods.
    pub fn reader(&self) -> Lock {
        self.0.reader().blocking()
    }

    /// Returns the write side as a [`Lock`], with all its methods.
    pub fn writer(&self) -> Lock {
        self.0.writer().blocking()
    }

    /// Acquires the lock for reading.
    ///
    /// # Errors
    /// As for [`crate::RwLock::read`].
    pub fn read(&self) -> Result<Guard, Error> {
        self.reader().acquire()
    }

    /// Acquires the lock for writing.
    ///
    /// # Errors
    /// As for [`crate::RwLock::write`].
    pub fn write(&self) -> Result<WriteGuard, Error> {
        as_thread(self.0.write()).map(WriteGuard)
    }
}

/// A lock held for writing, for code that is not async. It dereferences to [`crate::Guard`].
#[derive(Debug)]
#[must_use = "the lock is released as soon as the guard is dropped; bind it to a name"]
pub struct WriteGuard(crate::WriteGuard);

impl WriteGuard {
    /// Downgrades to a reader, like [`crate::WriteGuard::downgrade`].
    pub fn downgrade(self) -> Guard {
        Guard(block_on(self.0.downgrade()))
    }

    /// Releases the lock, and returns whether it was held until now.
    ///
    /// # Errors
    /// As for [`crate::Guard::release`].
    pub fn release(self) -> Result<Released, Error> {
        block_on(self.0.release())
    }
}

impl std::ops::Deref for WriteGuard {
    type Target = crate::Guard;

    fn deref(&self) -> &crate::Guard {
        &self.0
    }
}

/// A semaphore for code that is not async.
#[derive(Clone, Debug)]
pub struct Semaphore(crate::Semaphore);

impl Semaphore {
    pub(crate) fn new(inner: crate::Semaphore) -> Self {
        Self(inner)
    }

    /// Returns a number of permits as a [`Lock`], with all its methods.
    pub fn permits(&self, permits: u32) -> Lock {
        self.0.permits(permits).blocking()
    }

    /// Acquires one permit.
    ///
    /// # Errors
    /// As for [`crate::Semaphore::acquire`].
    pub fn acquire(&self) -> Result<Guard, Error> {
        self.permits(1).acquire()
    }

    /// Returns how many permits are free.
    ///
    /// # Errors
    /// As for [`crate::Semaphore::available`].
    pub fn available(&self) -> Result<u32, Error> {
        block_on(self.0.available())
    }
}

/// Acquires several locks at once, like [`crate::acquire_all`]. They are released when they are dropped.
///
/// # Errors
/// As for [`crate::acquire_all`].
pub fn acquire_all(
    locks: impl IntoIterator<Item = Lock>,
    wait: Wait,
) -> Result<crate::Guards, Error> {
    as_thread(crate::acquire_all(locks.into_iter().map(|lock| lock.0), wait))
}
