//! What a server says about itself: commands, bytes and time since it was asked to count anew.

use std::io;

use tenure_testkit::Server;
use tenure_testkit::resp::{Connection, Reply};

/// What a server did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    /// Commands, also those within scripts.
    pub(crate) commands: f64,
    /// Calls of scripts.
    pub(crate) scripts: f64,
    pub(crate) bytes_in: f64,
    pub(crate) bytes_out: f64,
    /// µs of its process.
    pub(crate) cpu_us: f64,
}

impl Cost {
    fn parse(info: &str) -> Self {
        let commands = info.lines().filter_map(command);
        // The harness's own commands are no part of the work.
        let commands = commands.filter(|(name, _)| !matches!(*name, "info" | "config|resetstat"));
        let (mut all, mut scripts) = (0.0, 0.0);
        for (name, calls) in commands {
            all += calls;
            if name.starts_with("eval") || name.starts_with("fcall") {
                scripts += calls;
            }
        }
        let number = |name| field(info, name).unwrap_or(0.0);
        Self {
            commands: all,
            scripts,
            bytes_in: number("total_net_input_bytes"),
            bytes_out: number("total_net_output_bytes"),
            cpu_us: (number("used_cpu_user") + number("used_cpu_sys")) * 1e6,
        }
    }

    /// Begins to count anew; the time, which cannot be reset, so far.
    pub(crate) fn begin(server: &mut Connection) -> io::Result<Self> {
        server.command(&["CONFIG", "RESETSTAT"])?;
        Ok(Self { cpu_us: Self::parse(&info(server)?).cpu_us, ..Self::default() })
    }

    /// What was done since then.
    pub(crate) fn since(self, server: &mut Connection) -> io::Result<Self> {
        let now = Self::parse(&info(server)?);
        Ok(Self { cpu_us: now.cpu_us - self.cpu_us, ..now })
    }

    /// Of several servers together.
    pub(crate) fn sum(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            commands: sum.commands + one.commands,
            scripts: sum.scripts + one.scripts,
            bytes_in: sum.bytes_in + one.bytes_in,
            bytes_out: sum.bytes_out + one.bytes_out,
            cpu_us: sum.cpu_us + one.cpu_us,
        })
    }
}

/// Keys and bytes of the server's memory.
pub(crate) fn stored(server: &Server) -> io::Result<(f64, f64)> {
    let mut plain = server.connect()?;
    let keys = match plain.command(&["DBSIZE"])? {
        Reply::Integer(count) => count as f64,
        other => return Err(io::Error::other(format!("DBSIZE: {other:?}"))),
    };
    Ok((keys, field(&info(&mut plain)?, "used_memory").unwrap_or(0.0)))
}

fn info(server: &mut Connection) -> io::Result<String> {
    let reply = server.command(&["INFO", "all"])?;
    reply.text().ok_or_else(|| io::Error::other(format!("INFO: {reply:?}")))
}

/// The name of a command and its calls, of a line such as `cmdstat_set:calls=2,usec=1,…`.
fn command(line: &str) -> Option<(&str, f64)> {
    let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
    Some((name, rest.split(',').next()?.parse().ok()?))
}

fn field(info: &str, name: &str) -> Option<f64> {
    let mut values = info.lines().filter_map(|line| line.trim().split_once(':'));
    values.find(|(key, _)| *key == name)?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Stats\r\ntotal_net_input_bytes:1500\r\ntotal_net_output_bytes:500\r\n\
        # CPU\r\nused_cpu_sys:0.250000\r\nused_cpu_user:0.750000\r\n\
        used_memory:1048576\r\nused_memory_rss:7\r\n\
        # Commandstats\r\ncmdstat_evalsha:calls=10,usec=5,usec_per_call=0.5\r\n\
        cmdstat_set:calls=3,usec=5,usec_per_call=0.5\r\ncmdstat_info:calls=2,usec=1\r\n\
        cmdstat_config|resetstat:calls=1,usec=1\r\n";

    #[test]
    fn the_cost_is_read_from_info() {
        let cost = Cost::parse(INFO);
        assert_eq!((cost.commands, cost.scripts), (13.0, 10.0));
        assert_eq!((cost.bytes_in, cost.bytes_out, cost.cpu_us), (1500.0, 500.0, 1e6));
        assert_eq!(field(INFO, "used_memory"), Some(1_048_576.0));
        assert_eq!(field(INFO, "missing"), None);
    }

    #[test]
    fn a_real_server_counts_commands() {
        let server = Server::start();
        let mut plain = server.connect().unwrap();
        plain.command(&["SET", "before", "1"]).unwrap();
        let cost = Cost::begin(&mut plain).unwrap();
        (0..5).for_each(|_| drop(plain.command(&["SET", "a", "1"]).unwrap()));
        plain.command(&["EVAL", "return redis.call('GET', 'a')", "0"]).unwrap();
        let cost = cost.since(&mut plain).unwrap();
        assert_eq!((cost.commands, cost.scripts), (7.0, 1.0));
        assert!(cost.bytes_in > 100.0);
        assert_eq!(stored(&server).unwrap().0, 2.0);
    }
}
