//! The other kinds, for code that is not async.

use std::time::Duration;

use super::{Guard, Lock, as_thread, block_on};
use crate::election::{Leader, Leadership};
use crate::error::Error;
use crate::guard::Released;
use crate::info::LockInfo;
use crate::wait::Wait;

/// A mirror of a type whose methods give values that need no mirror of their own.
macro_rules! mirror {
    ($name:ident { $(fn $method:ident($($argument:ident: $type:ty)?) -> $output:ty;)+ }) => {
        #[doc = concat!("As [`crate::", stringify!($name), "`], for code that is not async.")]
        #[derive(Clone, Debug)]
        pub struct $name(crate::$name);

        impl $name {
            pub(crate) fn new(inner: crate::$name) -> Self {
                Self(inner)
            }

            $(
                #[doc = concat!(
                    "As [`crate::", stringify!($name), "::", stringify!($method), "`]; it parks ",
                    "the thread.\n\n# Errors\nAs there."
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

    /// The right to read as a lock, for all that a [`Lock`] can do.
    pub fn reader(&self) -> Lock {
        self.0.reader().blocking()
    }

    /// The right to write as a lock, for all that a [`Lock`] can do.
    pub fn writer(&self) -> Lock {
        self.0.writer().blocking()
    }

    /// Waits until it may read.
    ///
    /// # Errors
    /// As for [`crate::RwLock::read`].
    pub fn read(&self) -> Result<Guard, Error> {
        self.reader().acquire()
    }

    /// Waits until it may write.
    ///
    /// # Errors
    /// As for [`crate::RwLock::write`].
    pub fn write(&self) -> Result<WriteGuard, Error> {
        as_thread(self.0.write()).map(WriteGuard)
    }
}

/// The right to write, for code that is not async. It can do all that [`crate::Guard`] can.
#[derive(Debug)]
#[must_use = "the lock is released as soon as the guard is dropped; bind it to a name"]
pub struct WriteGuard(crate::WriteGuard);

impl WriteGuard {
    /// From writer to reader, as [`crate::WriteGuard::downgrade`].
    pub fn downgrade(self) -> Guard {
        Guard(block_on(self.0.downgrade()))
    }

    /// Releases the lock, and tells whether it was held until now.
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

    /// So many permits as a lock, for all that a [`Lock`] can do.
    pub fn permits(&self, permits: u32) -> Lock {
        self.0.permits(permits).blocking()
    }

    /// Waits until it has one permit.
    ///
    /// # Errors
    /// As for [`crate::Semaphore::acquire`].
    pub fn acquire(&self) -> Result<Guard, Error> {
        self.permits(1).acquire()
    }

    /// How many permits are free.
    ///
    /// # Errors
    /// As for [`crate::Semaphore::available`].
    pub fn available(&self) -> Result<u32, Error> {
        block_on(self.0.available())
    }
}

/// Several locks at once, as [`crate::acquire_all`]. Dropped, they are released.
///
/// # Errors
/// As for [`crate::acquire_all`].
pub fn acquire_all(
    locks: impl IntoIterator<Item = Lock>,
    wait: Wait,
) -> Result<crate::Guards, Error> {
    as_thread(crate::acquire_all(locks.into_iter().map(|lock| lock.0), wait))
}
