//! The servers of one work.

use std::time::Duration;

use tenure_testkit::resp::Connection;
use tenure_testkit::{Distance, Server};

use super::info::{self, Cost};
use super::statistics::median;
use super::work::Place;
use crate::sh;

/// Half a round trip to servers that are far away.
const ONE_WAY: Duration = Duration::from_micros(500);

/// How many PINGs are measured in a row, and on how many connections. How long one takes depends on the cores on which its two threads
/// happen to run, and a new thread and connection draw them anew.
const PINGS: usize = 40;
const CONNECTIONS: usize = 8;

/// One server, near or far, or five.
pub(crate) struct Store {
    servers: Vec<Server>,
    distance: Option<Distance>,
}

impl Store {
    pub(crate) fn start(place: Place) -> Self {
        let count = if place == Place::Five { 5 } else { 1 };
        let servers: Vec<_> = (0..count).map(|_| Server::builder().on_port().start()).collect();
        let distance = (place == Place::Far).then(|| Distance::start(&servers[0], ONE_WAY));
        Self { servers, distance }
    }

    /// The addresses that programs get, separated by commas.
    pub(crate) fn urls(&self) -> String {
        match &self.distance {
            Some(distance) => distance.url(),
            None => self.servers.iter().map(Server::url).collect::<Vec<_>>().join(","),
        }
    }

    pub(crate) fn version(&self) -> String {
        self.servers[0].version().to_string()
    }

    /// Removes all keys. Those of a quorum stay: they mark its servers.
    pub(crate) fn clear(&self) -> Result<(), String> {
        if let [server] = &self.servers[..] {
            let mut plain = server.connect().map_err(|error| error.to_string())?;
            plain.command(&["FLUSHALL", "SYNC"]).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Plain connections to all servers, which no distance delays.
    pub(crate) fn connect(&self) -> Result<Vec<Connection>, String> {
        let all = self.servers.iter().map(Server::connect);
        all.collect::<Result<_, _>>().map_err(|error| error.to_string())
    }

    /// Keys and bytes of memory.
    pub(crate) fn stored(&self) -> Result<(f64, f64), String> {
        info::stored(&self.servers[0]).map_err(|error| error.to_string())
    }

    /// The median of a PING in µs, over the way that the programs' commands take.
    pub(crate) fn ping_us(&self) -> Result<f64, String> {
        let mut times = Vec::new();
        for _ in 0..CONNECTIONS {
            let plain = match &self.distance {
                Some(distance) => distance.connect(),
                None => self.servers[0].connect(),
            };
            let mut plain = plain.map_err(|error| error.to_string())?;
            let pinging = std::thread::spawn(move || pings(&mut plain));
            times.extend(pinging.join().map_err(|_| "a PING failed")??);
        }
        Ok(median(times).unwrap_or(f64::NAN))
    }
}

fn pings(plain: &mut Connection) -> Result<Vec<f64>, String> {
    let mut ping = || {
        let began = sh::now();
        plain.command(&["PING"]).map_err(|error| error.to_string())?;
        Ok((sh::now() - began).as_secs_f64() * 1e6)
    };
    (0..PINGS).map(|_| ping()).collect()
}

/// Begins to count at all servers.
pub(crate) fn begin(servers: &mut [Connection]) -> Result<Vec<Cost>, String> {
    let all = servers.iter_mut().map(Cost::begin);
    all.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// What all servers did since then.
pub(crate) fn cost(begun: Vec<Cost>, servers: &mut [Connection]) -> Result<Cost, String> {
    let all = begun.into_iter().zip(servers).map(|(cost, server)| cost.since(server));
    let all = all.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    Ok(Cost::sum(all.into_iter()))
}
