//! However long a chain of answers, wake-ups and dropped guards is, the stack does not grow. A program of its
//! own, because it uses all cores.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "stack/inline.rs"]
mod inline;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::time::Duration;

use tenure::engine::{
    AcquireRequest, Acquired, Answer, CancelRequest, Capabilities, Engine, ForceOutcome,
    ForceRequest, Grant, ListRequest, Listener, MemoryEngine, ReleaseOutcome, ReleaseRequest,
    Renewal, Renewed, Standing, Wakeup,
};
use tenure::{Entry, Fence, Lock, LockInfo, LockName, Moment, Tenure};

const STEPS: usize = 1_000_000;
const STACK: usize = 256 * 1024;

/// Tasks that wait for a lock, each on the next of some clients. A task that gets it starts another waiter,
/// and releases.
struct Relay {
    locks: Vec<Lock>,
    steps: AtomicUsize,
    done: mpsc::Sender<()>,
}

fn wait(relay: &Arc<Relay>, client: usize) {
    let relay = relay.clone();
    inline::spawn(async move {
        // On a thread of tokio's it would yield to others first.
        let acquire = tokio::task::unconstrained(relay.locks[client].acquire());
        let guard = acquire.await.unwrap();
        let step = relay.steps.fetch_add(1, Ordering::SeqCst) + 1;
        if step < STEPS {
            wait(&relay, client);
        } else if step == STEPS {
            relay.done.send(()).unwrap();
        }
        drop(guard);
    });
}

fn relay(locks: Vec<Lock>) -> (Arc<Relay>, mpsc::Receiver<()>) {
    let (done, ended) = mpsc::channel();
    (Arc::new(Relay { locks, steps: AtomicUsize::new(0), done }), ended)
}

/// Starts with a small stack, which a chain of nested calls soon overflows.
fn on_a_small_stack(start: impl FnOnce() + Send + 'static, ended: &mpsc::Receiver<()>) {
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(start).unwrap();
    ended.recv_timeout(Duration::from_secs(300)).expect("the chain continues");
    thread.join().unwrap();
}

/// I8: a release here grants the lock there, within the same call, and a release there grants it here.
#[test]
fn clients_that_hand_over_to_each_other_need_no_stack() {
    let store = MemoryEngine::new();
    let client = || Tenure::builder().engine(store.another()).unwrap();
    let clients: Vec<_> = (0..3).map(|_| client()).collect();
    let locks = clients.iter().map(|client| client.lock("x").fair()).collect();
    let (relay, ended) = relay(locks);
    on_a_small_stack(
        move || {
            let first = tenure::blocking::block_on(clients[0].lock("x").acquire()).unwrap();
            (0..clients.len()).for_each(|client| wait(&relay, client));
            drop(first);
        },
        &ended,
    );
}

/// I8: a wait group asks again for its remaining tasks, and is answered at once: granted, over and over.
#[test]
fn a_wait_group_whose_questions_are_answered_at_once_needs_no_stack() {
    let engine = Generous::default();
    let first = engine.first.clone();
    let tenure = Tenure::builder().engine(engine).unwrap();
    let (relay, ended) = relay(vec![tenure.lock("x")]);
    on_a_small_stack(
        move || {
            (0..2).for_each(|_| wait(&relay, 0));
            let (entry, listener) = first.lock().unwrap().take().unwrap();
            let name = LockName::new("x").unwrap();
            let grant = Generous::grant(1);
            listener.upgrade().unwrap().wake(Wakeup::Granted { name, entry, grant });
            drop(tenure);
        },
        &ended,
    );
}

/// The waiter, and how to wake it.
type First = (Entry, Weak<dyn Listener>);

/// A store that makes the first request wait, and grants all later ones at once.
#[derive(Default)]
struct Generous {
    listener: Mutex<Option<Weak<dyn Listener>>>,
    first: Arc<Mutex<Option<First>>>,
    asked: AtomicU64,
}

impl Generous {
    fn grant(fence: u64) -> Grant {
        let fence = Fence::from_value(fence);
        Grant { fence, fences: 1, lease: Duration::from_secs(30), at: Moment::ZERO }
    }
}

impl Engine for Generous {
    fn capabilities(&self) -> Capabilities {
        MemoryEngine::new().capabilities()
    }

    fn acquire(&self, request: AcquireRequest) -> Answer<Acquired> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        if asked == 0 {
            let listener = self.listener.lock().unwrap().clone().unwrap();
            *self.first.lock().unwrap() = Some((request.entry, listener));
            let free_in = Duration::from_secs(30);
            let standing = Standing { ahead: 1, free_in, at: Moment::ZERO };
            return Answer::now(Ok(Acquired::Queued(standing)));
        }
        Answer::now(Ok(Acquired::Granted(Self::grant(asked + 1))))
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Answer<Vec<Result<Renewed, tenure::StoreError>>> {
        Answer::now(Ok(renewals.iter().map(|_| Ok(Renewed::Extended)).collect()))
    }

    fn release(&self, _: ReleaseRequest) -> Answer<ReleaseOutcome> {
        Answer::now(Ok(ReleaseOutcome::Released { remaining: 0 }))
    }

    fn cancel(&self, _: CancelRequest) -> Answer<()> {
        Answer::now(Ok(()))
    }

    fn inspect(&self, name: LockName) -> Answer<LockInfo> {
        MemoryEngine::new().inspect(name)
    }

    fn list(&self, request: ListRequest) -> Answer<Vec<LockInfo>> {
        MemoryEngine::new().list(request)
    }

    fn force_release(&self, request: ForceRequest) -> Answer<ForceOutcome> {
        MemoryEngine::new().force_release(request)
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        *self.listener.lock().unwrap() = Some(listener);
    }
}
