//! Java processes and Tenure processes fight for one name.

use std::process::Command;

use tenure::Owner;
use tenure::blocking::block_on;
use tenure_testkit::resp::Reply;
use tenure_testkit::{Codec, Redisson, Server};

use super::shared::{connect, is_long};
use crate::process::{Process, part, this_program};

/// R1, I1: a counter that is read and later written back, in a file, loses no increment: 10,000 sections of 8 processes in
/// the long run. Some sections are entered twice. The Java processes have different codecs.
#[test]
fn processes_of_both_lose_no_increment() {
    let Some(redisson) = Redisson::for_test() else { return };
    let (processes, sections) = if is_long() { (4, 1_250) } else { (2, 150) };
    let server = Server::builder().on_port().start();
    let counter = server.folder().join("counter");
    std::fs::write(&counter, "0").unwrap();
    let java: Vec<_> = (0..processes)
        .map(|number| {
            let codec = if number % 2 == 0 { Codec::Default } else { Codec::Text };
            redisson.start(server.port().unwrap(), false, codec)
        })
        .collect();
    let rust: Vec<_> = (0..processes).map(|_| fighter(&server, sections)).collect();
    let rest = format!("{sections} {}", counter.display());
    let fights: Vec<_> = java.iter().map(|it| it.ask("a", "fight", "fight", &rest)).collect();
    for fight in fights {
        assert_eq!(fight.answer().0, "ok");
    }
    for mut fighter in rust {
        fighter.expect("done");
    }
    let counted: usize = std::fs::read_to_string(&counter).unwrap().trim().parse().unwrap();
    assert_eq!(counted, 2 * processes * sections);
    let mut connection = server.connect().unwrap();
    let left = connection.command(&["EXISTS", "fight"]).unwrap();
    assert_eq!(left, Reply::Integer(0), "the lock is free");
}

fn fighter(server: &Server, sections: usize) -> Process {
    let mut command: Command = this_program();
    part(&mut command, "redisson::fight::the_fighter")
        .env("TENURE_FIGHT_URL", server.url())
        .env("TENURE_FIGHT_COUNTER", server.folder().join("counter"))
        .env("TENURE_FIGHT_SECTIONS", sections.to_string());
    Process::start(&mut command)
}

#[test]
#[ignore = "the other half of the test here, which runs it"]
fn the_fighter() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let tenure = connect(&variable("TENURE_FIGHT_URL"));
    let counter = variable("TENURE_FIGHT_COUNTER");
    let sections: usize = variable("TENURE_FIGHT_SECTIONS").parse().unwrap();
    block_on(async {
        for section in 0..sections {
            let lock = tenure.lock("fight").owner(Owner::new());
            let guard = lock.acquire().await.unwrap();
            let again = if section % 8 == 0 { Some(lock.acquire().await.unwrap()) } else { None };
            let seen: usize = std::fs::read_to_string(&counter).unwrap().trim().parse().unwrap();
            std::fs::write(&counter, (seen + 1).to_string()).unwrap();
            guard.ensure_held().unwrap();
            drop(again);
            drop(guard);
        }
    });
    drop(tenure);
    println!("done");
}
