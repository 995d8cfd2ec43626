//! Runs every fuzz target with random and mutated inputs: `random SECONDS [SEED]`.
//!
//! Without coverage it finds less than cargo-fuzz, but it needs neither a nightly toolchain nor a C++ compiler. A
//! failure prints the target, the input and the seed, which repeats the run.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 5] = [
    ("handle", tenure::fuzzing::handle),
    ("name", tenure::fuzzing::name),
    ("record", tenure::fuzzing::record),
    ("resp", tenure::fuzzing::resp),
    ("url", tenure::fuzzing::url),
];

/// Longer inputs only repeat what shorter ones contain.
const LONGEST: usize = 1024;

thread_local! {
    /// The input that is being tried, for the message of a panic.
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(10, |text| text.parse().expect("SECONDS is a number"));
    let seed = arguments.next().map(|text| text.parse().expect("SEED is a number"));
    let seed = seed.unwrap_or_else(|| getrandom::u64().expect("the system has randomness"));
    println!("fuzz: seed {seed}");
    let print_panic = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        INPUT.with_borrow(|input| eprintln!("fuzz: seed {seed}, input {:?}", input.escape_ascii().to_string()));
        print_panic(panic);
    }));
    for (name, target) in TARGETS {
        let runs = run(name, target, Duration::from_secs(seconds), Random(seed | 1));
        println!("fuzz: {name}: {runs} inputs, no failure");
    }
}

fn run(name: &str, target: fn(&[u8]), time: Duration, mut random: Random) -> u64 {
    println!("fuzz: {name}");
    let seeds = seeds(name);
    let (start, mut runs) = (Instant::now(), 0);
    while start.elapsed() < time {
        // The clock is read once per thousand inputs, which are faster than it.
        for _ in 0..1_000 {
            let input = random.input(&seeds);
            INPUT.with_borrow_mut(|last| last.clone_from(&input));
            target(&input);
        }
        runs += 1_000;
    }
    runs
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(name);
    let files = fs::read_dir(folder).expect("every target has seeds");
    let mut paths: Vec<_> = files.flatten().map(|file| file.path()).collect();
    // The order of a folder differs between machines; the same seed must give the same inputs.
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("a seed can be read")).collect()
}

/// xorshift64*: small, fast, and repeatable from its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 16) as usize % limit.max(1)
    }

    fn byte(&mut self) -> u8 {
        // Small numbers and the bytes that structure texts find more than uniform noise.
        const STRUCTURE: &[u8] = b"\r\n:*$+-/@?&=%[]0123456789\0\x01\xff";
        if self.below(2) == 0 {
            STRUCTURE[self.below(STRUCTURE.len())]
        } else {
            (self.next() >> 32) as u8
        }
    }

    fn input(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut input = match self.below(8) {
            0 => {
                let length = self.below(64);
                (0..length).map(|_| self.byte()).collect()
            }
            _ => seeds[self.below(seeds.len())].clone(),
        };
        for _ in 0..=self.below(6) {
            self.mutate(&mut input, seeds);
        }
        input.truncate(LONGEST);
        input
    }

    fn mutate(&mut self, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        match self.below(6) {
            0 => input.insert(at, self.byte()),
            1 => input.truncate(at),
            2 if at < input.len() => drop(input.remove(at)),
            3 if at < input.len() => input[at] ^= 1 << self.below(8),
            4 => {
                let other = &seeds[self.below(seeds.len())];
                let from = self.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ if at < input.len() => input[at] = self.byte(),
            _ => input.push(self.byte()),
        }
    }
}
