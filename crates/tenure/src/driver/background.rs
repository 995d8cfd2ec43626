//! Background tasks: work without a caller, on the driver's thread.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::watch::Watch;
use super::{Driver, foreign};
use crate::clock;
use crate::parking;
use crate::sync::lock;

impl Driver {
    /// Runs a future on the driver's thread, independently of the caller (I8).
    pub(crate) fn spawn(self: &Arc<Self>, future: impl Future<Output = ()> + Send + 'static) {
        // This thread has often sent the request that the future awaits, and need not read its answer.
        parking::leave_to_others();
        self.spawner.spawn(self.watched(future));
    }

    /// The same, for a future that mostly waits for an answer in flight: the driver's thread is woken when
    /// the answer arrives, and not before.
    pub(crate) fn spawn_later(self: &Arc<Self>, future: impl Future<Output = ()> + Send + 'static) {
        Deferred::start(self, Box::pin(self.watched(future)));
        parking::leave_to_others();
    }

    /// Counts the future as running until it is done. A panic in it ends the driver.
    fn watched(
        self: &Arc<Self>,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let running = Running::new(self);
        async move {
            let mut future = pin!(future);
            let finished = poll_fn(|context| {
                let polled = foreign::call(|| future.as_mut().poll(context));
                polled.map_or(Poll::Ready(false), |polled| polled.map(|()| true))
            });
            if !finished.await {
                running.driver.end();
            }
            drop(running);
        }
    }

    /// Resolves when no background task is left, or after `time`. True in the first case.
    pub(crate) async fn quiet_within(&self, time: Duration) -> bool {
        self.before(clock::now() + time, self.quiet()).await.is_some()
    }

    async fn quiet(&self) {
        let Background { running, idle } = &self.background;
        idle.until(|| (running.load(Ordering::SeqCst) == 0).then_some(())).await;
    }
}

/// The background tasks of a driver.
#[derive(Default)]
pub(super) struct Background {
    running: AtomicUsize,
    pub(super) idle: Watch,
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A task that was first polled by the thread that started it, and moves to the driver's thread when it is
/// woken.
struct Deferred {
    driver: Weak<Driver>,
    is_woken: AtomicBool,
    task: Mutex<Option<Task>>,
}

impl Deferred {
    fn start(driver: &Arc<Driver>, mut task: Task) {
        let deferred = Arc::new(Self {
            driver: Arc::downgrade(driver),
            is_woken: AtomicBool::new(false),
            task: Mutex::default(),
        });
        let waker = Waker::from(deferred.clone());
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            return;
        }
        *lock(&deferred.task) = Some(task);
        // A wake-up that came before the task was stored found none to move.
        if deferred.is_woken.load(Ordering::SeqCst) {
            deferred.move_on();
        }
    }

    fn move_on(&self) {
        let task = lock(&self.task).take();
        if let (Some(task), Some(driver)) = (task, self.driver.upgrade()) {
            driver.spawner.spawn(task);
        }
    }
}

impl Wake for Deferred {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.move_on();
    }
}

/// One background task, until it is done, or dropped with the thread.
struct Running {
    driver: Arc<Driver>,
}

impl Running {
    fn new(driver: &Arc<Driver>) -> Self {
        driver.background.running.fetch_add(1, Ordering::SeqCst);
        Self { driver: driver.clone() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Background { running, idle } = &self.driver.background;
        if running.fetch_sub(1, Ordering::SeqCst) == 1 {
            idle.announce();
        }
    }
}
