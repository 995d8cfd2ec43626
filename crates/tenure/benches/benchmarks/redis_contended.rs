//! Contention for one lock, in one process and between several.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tenure_testkit::resp::Connection;

use super::child::{Ready, spawn};
use super::memory::{now, pause};
use super::redis::{client, median, ping, server, verbose};

const SECTION: Duration = Duration::from_millis(2);
const PROCESSES: usize = 8;
/// How long each process holds the lock.
const HELD: Duration = Duration::from_micros(300);

/// Sections per second of 64 tasks of one process on one name, over PINGs per second.
pub(crate) fn local() -> Vec<f64> {
    let server = server();
    let (tenure, mut plain) = (client(&server), server.connect().expect("a connection"));
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).build().expect("a runtime");
    let (sections, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    for _ in 0..64 {
        let (lock, sections, stop) = (tenure.lock("x"), sections.clone(), stop.clone());
        runtime.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let guard = lock.acquire().await.expect("a lock");
                sections.fetch_add(1, Ordering::Relaxed);
                drop(guard);
            }
        });
    }
    let rates: Vec<_> = (0..5)
        .map(|_| {
            let (started, before) = (now(), sections.load(Ordering::Relaxed));
            pause(Duration::from_secs(1));
            let count = sections.load(Ordering::Relaxed) - before;
            count as f64 / started.elapsed().as_secs_f64()
        })
        .collect();
    stop.store(true, Ordering::Relaxed);
    drop(runtime);
    let ping = median((0..20).map(|_| ping(&mut plain, 500)));
    verbose(&format!("{:.0} sections/s, ping {ping:.1} µs", rates[2]));
    rates.iter().map(|rate| rate * ping / 1e6).collect()
}

/// The result of eight processes that contend for one lock.
struct Crowd {
    served: Vec<u64>,
    worst_wait: f64,
    seconds: f64,
    commands: f64,
}

impl Crowd {
    fn run() -> Self {
        let server = server();
        let mut plain = server.connect().expect("a connection");
        let children: Vec<_> =
            (0..PROCESSES).map(|_| spawn("contend", &server.url(), "")).collect();
        let mut children: Vec<_> = children.into_iter().map(Ready::wait).collect();
        plain.command(&["CONFIG", "RESETSTAT"]).expect("a reply");
        let started = now();
        children.iter_mut().for_each(Ready::go);
        let reports: Vec<Vec<f64>> = children.into_iter().map(Ready::report).collect();
        let seconds = started.elapsed().as_secs_f64();
        let stats =
            plain.command(&["INFO", "commandstats"]).expect("a reply").text().expect("text");
        let calls = stats.lines().filter(|line| line.starts_with("cmdstat_evalsha:"));
        let calls = calls
            .filter_map(|line| line.split("calls=").nth(1)?.split(',').next()?.parse::<f64>().ok());
        let served: Vec<_> = reports.iter().map(|report| report[0] as u64).collect();
        Self {
            commands: calls.sum::<f64>() / served.iter().sum::<u64>() as f64,
            worst_wait: reports.iter().map(|report| report[1]).fold(0.0, f64::max),
            served,
            seconds,
        }
    }
}

/// Critical sections per second of eight processes, over those of one process without a lock.
pub(crate) fn cross() -> Vec<f64> {
    (0..3)
        .map(|_| {
            let alone = alone();
            let crowd = Crowd::run();
            let rate = crowd.served.iter().sum::<u64>() as f64 / crowd.seconds;
            verbose(&format!("alone {alone:.0}/s, together {rate:.0}/s, {:?}", crowd.served));
            rate / alone
        })
        .collect()
}

/// The least served process, over the most served.
pub(crate) fn cross_share() -> Vec<f64> {
    let crowd = Crowd::run();
    let (least, most) = (crowd.served.iter().min(), crowd.served.iter().max());
    vec![*least.expect("eight") as f64 / *most.expect("eight") as f64]
}

/// The longest wait, over the time in which each of the others is served once.
pub(crate) fn cross_wait() -> Vec<f64> {
    let crowd = Crowd::run();
    vec![crowd.worst_wait / (SECTION.as_secs_f64() * PROCESSES as f64)]
}

/// Script calls per section.
pub(crate) fn cross_commands() -> Vec<f64> {
    vec![Crowd::run().commands]
}

fn alone() -> f64 {
    let started = now();
    (0..500).for_each(|_| pause(SECTION));
    500.0 / started.elapsed().as_secs_f64()
}

/// The median from one process's release to the other's holding it, over one PING.
pub(crate) fn handover() -> Vec<f64> {
    (0..5)
        .map(|_| {
            let server = server();
            let mut plain = server.connect().expect("a connection");
            let shared = server.folder().join("released").display().to_string();
            std::fs::write(&shared, [0; 16]).expect("a file");
            let children: Vec<_> =
                (0..2).map(|_| spawn("handover", &server.url(), &shared)).collect();
            let mut children: Vec<_> = children.into_iter().map(Ready::wait).collect();
            let before = rested_ping(&mut plain);
            children.iter_mut().for_each(Ready::go);
            let times = median(children.into_iter().flat_map(Ready::report));
            let after = rested_ping(&mut plain);
            verbose(&format!("hand-over {times:.1} µs, ping {before:.1} and {after:.1} µs"));
            times / ((before + after) / 2.0)
        })
        .collect()
}

/// The same, over its limit: a bare message from one process to the other.
pub(crate) fn handover_relay() -> Vec<f64> {
    let between = |roles: [&str; 2]| {
        let server = server();
        let shared = server.folder().join("released").display().to_string();
        std::fs::write(&shared, [0; 16]).expect("a file");
        let children = roles.map(|role| spawn(role, &server.url(), &shared));
        let mut children = children.map(Ready::wait);
        children.iter_mut().for_each(Ready::go);
        median(children.into_iter().flat_map(Ready::report))
    };
    (0..5)
        .map(|_| {
            let (relay, handover) = (between(["relay0", "relay1"]), between(["handover"; 2]));
            verbose(&format!("hand-over {handover:.1} µs, relay {relay:.1} µs"));
            handover / relay
        })
        .collect()
}

/// Sections per second of two processes that do nothing in them; and the less served over the other.
pub(crate) fn two_processes() -> Vec<f64> {
    (0..3).map(|_| two().0).collect()
}

/// The less served of the two, over the other.
pub(crate) fn two_share() -> Vec<f64> {
    (0..3).map(|_| two().1).collect()
}

fn two() -> (f64, f64) {
    let server = server();
    let mut children = [0, 1].map(|_| spawn("empty", &server.url(), "").wait());
    children.iter_mut().for_each(Ready::go);
    let served = children.map(|child| child.report()[0]);
    let rate = served.iter().sum::<f64>() / EMPTY.as_secs_f64();
    verbose(&format!("{rate:.0}/s, {served:?}"));
    (rate, served[0].min(served[1]) / served[0].max(served[1]))
}

/// A PING after a pause like that of the holders: all threads sleep, and an idle machine wakes far more slowly
/// than a busy one.
fn rested_ping(plain: &mut Connection) -> f64 {
    median((0..500).map(|_| {
        pause(HELD);
        ping(plain, 1)
    }))
}

pub(crate) fn contend(lock: &tenure::blocking::Lock) {
    let (mut served, mut worst) = (0, 0.0_f64);
    let started = now();
    while started.elapsed() < Duration::from_secs(5) {
        let asked = now();
        let guard = lock.acquire().expect("a lock");
        worst = worst.max(asked.elapsed().as_secs_f64());
        pause(SECTION);
        drop(guard);
        served += 1;
    }
    println!("{served}\n{worst}");
}

/// How long two processes run.
const EMPTY: Duration = Duration::from_secs(3);

pub(crate) fn empty_sections(lock: &tenure::blocking::Lock) {
    let (mut served, started) = (0, now());
    while started.elapsed() < EMPTY {
        lock.acquire().expect("a lock").release().expect("a release");
        served += 1;
    }
    println!("{served}");
}

/// One of two processes that send each other a message in turn, with the pause of a holder between.
pub(crate) fn relay(number: &str, url: &str, shared: &str) {
    use std::os::unix::fs::FileExt;
    let options = std::fs::OpenOptions::new().read(true).write(true).open(shared);
    let file = options.expect("the shared file");
    let address = url.trim_start_matches("redis://").parse().expect("a port of this machine");
    let connect = || Connection::tcp(address).expect("a connection");
    let (mut hears, mut says) = (connect(), connect());
    hears.set_patience(Duration::from_secs(20)).expect("patience");
    let other = if number == "0" { "relay1" } else { "relay0" };
    hears.command(&["SUBSCRIBE", &format!("relay{number}")]).expect("a reply");
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).expect("the start signal");
    let mut times = Vec::new();
    for turn in 0..1_500 {
        if turn > 0 || number == "1" {
            hears.read().expect("a message");
            let heard = micros();
            let mut sent = [0; 8];
            file.read_exact_at(&mut sent, 0).expect("when it was sent");
            times.push(heard - u64::from_le_bytes(sent));
        }
        pause(HELD);
        file.write_all_at(&micros().to_le_bytes(), 0).expect("written");
        says.command(&["PUBLISH", other, "now"]).expect("a reply");
    }
    times.iter().for_each(|time| println!("{time}"));
}

/// The time of the last release is in a file that both can read.
pub(crate) fn hand_over(lock: &tenure::blocking::Lock, shared: &str) {
    use std::os::unix::fs::FileExt;
    let options = std::fs::OpenOptions::new().read(true).write(true).open(shared);
    let file = options.expect("the shared file");
    let me = std::process::id();
    let mut times = Vec::new();
    for _ in 0..1_500 {
        let guard = lock.acquire().expect("a lock");
        let held = micros();
        let mut last = [0; 16];
        file.read_exact_at(&mut last, 0).expect("the last release");
        let (who, when) = last.split_at(8);
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        // Only direct hand-overs from the other process count.
        if number(when) > 0 && number(who) != u64::from(me) {
            times.push(held - number(when));
        }
        pause(HELD);
        let mut record = u64::from(me).to_le_bytes().to_vec();
        record.extend(micros().to_le_bytes());
        file.write_all_at(&record, 0).expect("written");
        guard.release().expect("a release");
    }
    times.iter().for_each(|time| println!("{time}"));
}

fn micros() -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}
