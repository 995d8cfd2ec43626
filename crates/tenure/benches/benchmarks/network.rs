//! A server with a round trip of a millisecond: 0.5 ms each way. Results are in round trips, as measured with
//! a PING over the same connection.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure::Tenure;
use tenure::blocking::{Lock, block_on};
use tenure_testkit::Distance;
use tenure_testkit::resp::Connection;

use super::memory::{now, pause};
use super::pairs::{Clients, Round, runtime};
use super::redis::{is_verbose, median, ping, server, verbose};

const ONE_WAY: Duration = Duration::from_micros(500);

/// How long a lock is held before it is handed over: long enough for the other client to wait by then.
const HELD: Duration = Duration::from_millis(5);

const HANDOVERS: usize = 100;

/// The median of a pair by one caller, over two round trips.
pub(crate) fn pair_1() -> Vec<f64> {
    pair_of(1)
}

/// The median of a pair by each of 16 callers, over two round trips.
pub(crate) fn pair_16() -> Vec<f64> {
    pair_of(16)
}

/// The median of a pair by each of 64 callers, over two round trips.
pub(crate) fn pair_64() -> Vec<f64> {
    pair_of(64)
}

fn pair_of(callers: usize) -> Vec<f64> {
    let server = server();
    let distance = Distance::start(&server, ONE_WAY);
    let runtime = runtime();
    let clients = Clients::new(&distance.url(), &runtime);
    let mut plain = distance.connect().expect("a connection");
    let mut round = || {
        let before = round_trip(&mut plain);
        let ours = Round::of(&runtime, clients.ours(callers));
        let rate = ours.pairs_per_second();
        let pair = ours.p50();
        let trip = (before + round_trip(&mut plain)) / 2.0;
        let benchmark = pair / trip / 2.0;
        verbose(&format!(
            "pair {pair:.0} µs, trip {trip:.0} µs: {benchmark:.3}; {rate:.0} pairs/s"
        ));
        if is_verbose() {
            let rslock = Round::of(&runtime, clients.rslock(callers)).p50() / trip / 2.0;
            let rlock = Round::of(&runtime, clients.rlock(callers)).p50() / trip / 2.0;
            verbose(&format!("rslock {rslock:.3}, rlock {rlock:.3}"));
        }
        benchmark
    };
    round();
    (0..5).map(|_| round()).collect()
}

/// Microseconds of a PING.
fn round_trip(plain: &mut Connection) -> f64 {
    median((0..200).map(|_| ping(plain, 1)))
}

/// The median from one client's release to the other's holding it, over one round trip.
pub(crate) fn handover() -> Vec<f64> {
    let server = server();
    let distance = Distance::start(&server, ONE_WAY);
    let clients = [(); 2].map(|()| block_on(Tenure::connect(&distance.url())).expect("a client"));
    let mut plain = distance.connect().expect("a connection");
    let mut round = || {
        let before = round_trip(&mut plain);
        let released = Arc::new(Mutex::new(None));
        let threads = [0, 1].map(|me| {
            let (lock, released) = (clients[me].lock("x").blocking(), released.clone());
            std::thread::spawn(move || take_turns(&lock, me, &released))
        });
        let times = threads.into_iter().flat_map(|it| it.join().expect("a thread's end"));
        let time = median(times);
        let trip = (before + round_trip(&mut plain)) / 2.0;
        verbose(&format!("hand-over {time:.0} µs, trip {trip:.0} µs"));
        time / trip
    };
    round();
    (0..5).map(|_| round()).collect()
}

/// The last releaser, and the time.
type Released = Mutex<Option<(usize, Instant)>>;

/// How long hand-overs from the other to this one took, in microseconds.
fn take_turns(lock: &Lock, me: usize, released: &Released) -> Vec<f64> {
    let mut times = Vec::with_capacity(HANDOVERS);
    for _ in 0..HANDOVERS {
        let guard = lock.acquire().expect("a lock");
        let held = now();
        let last = *released.lock().expect("not poisoned");
        // Only direct hand-overs from the other client count.
        let from_other = last.filter(|(who, _)| *who != me);
        times.extend(from_other.map(|(_, at)| held.duration_since(at).as_secs_f64() * 1e6));
        pause(HELD);
        *released.lock().expect("not poisoned") = Some((me, now()));
        guard.release().expect("a release");
    }
    times
}
