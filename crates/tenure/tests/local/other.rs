//! The other process: the parts that these tests start.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tenure::Tenure;
use tenure::blocking::block_on;

use super::{access, disk, doctor, opening, readers, stops};
use crate::process::{Process, part, this_program};
use crate::{LONG, connect, now};

const THIS: &str = "local::other::the_other_process";
const FOLDER: &str = "TENURE_OTHER_FOLDER";
const PART: &str = "TENURE_OTHER_PART";

/// More than fit in a socket: the kernel's limit is 512 wake-ups, or fewer depending on their size.
pub(crate) const MANY: usize = 1500;

/// Starts a process that runs one of the parts below, and prints its progress.
pub(crate) fn start(folder: &Path, name: &str) -> Process {
    Process::start(with_part(&mut this_program(), folder, name))
}

/// Adds the part to a command that ends in this program.
pub(crate) fn with_part<'a>(
    command: &'a mut Command,
    folder: &Path,
    name: &str,
) -> &'a mut Command {
    part(command, THIS).env(FOLDER, folder).env(PART, name)
}

#[test]
#[ignore = "the other half of the tests here, which run it"]
fn the_other_process() {
    let folder = std::env::var(FOLDER).unwrap();
    let folder = Path::new(&folder);
    match std::env::var(PART).unwrap().as_str() {
        "hold" => hold(&connect(folder), Duration::from_secs(60)),
        "hold for a second" => hold(&connect(folder), Duration::from_secs(1)),
        "pass through" => pass_through(&connect(folder)),
        "take a permit" => take_a_permit(&connect(folder)),
        "hold many" => hold_many(&connect(folder)),
        "detach" => detach(&connect(folder)),
        "linger" => linger(&connect(folder)),
        "count" => count(&connect(folder), folder),
        "hurry" => hurry(&connect(folder)),
        "hold the mutex" => opening::hold_the_mutex(folder),
        "open a stuck store" => opening::open_a_stuck_store(folder),
        "list repeatedly" => readers::list_repeatedly(&connect(folder)),
        "open as the disk ends" => disk::open_as_the_disk_ends(folder),
        "fill the disk" => disk::fill_the_disk(folder),
        "open on a read-only disk" => disk::open_read_only(folder),
        "examine a full disk" => doctor::examine_a_full_disk(folder),
        "change the root" => access::change_the_root(folder),
        "flood a socket" => stops::flood_a_socket(folder),
        other => panic!("there is no part `{other}`"),
    }
}

/// Takes the lock, and holds it until it is lost.
fn hold(tenure: &Tenure, lease: Duration) {
    println!("connected");
    let guard = block_on(tenure.lock("x").lease(lease).acquire()).unwrap();
    println!("holds");
    block_on(guard.lost());
    println!("lost");
    println!("{:?}", block_on(guard.release()).unwrap());
}

/// Takes the lock once, for a short critical section.
fn pass_through(tenure: &Tenure) {
    block_on(block_on(tenure.lock("x").acquire()).unwrap().release()).unwrap();
    println!("passed");
}

fn take_a_permit(tenure: &Tenure) {
    let permit = block_on(tenure.semaphore("x", 2).lease(LONG * 3).acquire()).unwrap();
    println!("holds");
    block_on(permit.lost());
}

/// Takes more locks than wake-ups fit in a socket, and holds them until all are lost.
fn hold_many(tenure: &Tenure) {
    let lock = |number| tenure.lock(format!("many/{number}")).lease(Duration::from_secs(60));
    let guards: Vec<_> =
        (0..MANY).map(|number| block_on(lock(number).acquire()).unwrap()).collect();
    println!("holds");
    guards.iter().for_each(|guard| drop(block_on(guard.lost())));
    println!("lost");
}

fn detach(tenure: &Tenure) {
    let guard = block_on(tenure.lock("x").acquire()).unwrap();
    println!("handle {}", block_on(guard.detach()).unwrap());
    block_on(tenure.latch("l", 1).count_down()).unwrap();
    println!("counted");
    hold(tenure, Duration::from_secs(60));
}

fn linger(tenure: &Tenure) {
    let lock = tenure.lock("x").at_least(Duration::from_secs(60));
    block_on(block_on(lock.acquire()).unwrap().release()).unwrap();
    println!("released");
}

/// Adds one to a number in a file, a thousand times, each time under the lock.
fn count(tenure: &Tenure, folder: &Path) {
    let file = folder.join("../number");
    let started = now();
    for _ in 0..1000 {
        let guard = block_on(tenure.lock("x").acquire()).unwrap();
        let number: u64 = fs::read_to_string(&file).unwrap().parse().unwrap();
        fs::write(&file, (number + 1).to_string()).unwrap();
        block_on(guard.release()).unwrap();
    }
    println!("counted in {:?}", started.elapsed());
}

/// Takes and releases locks as fast as it can, and checks that it is the only holder.
fn hurry(tenure: &Tenure) {
    println!("connected");
    for round in 0_u64.. {
        let lock = tenure.lock(format!("x{}", round % 3));
        let guard = block_on(lock.acquire_within(LONG)).unwrap();
        let holders = block_on(lock.inspect()).unwrap().holders;
        assert_eq!(holders.len(), 1);
        assert_eq!(holders[0].owner, guard.owner());
        block_on(guard.release()).unwrap();
    }
}
