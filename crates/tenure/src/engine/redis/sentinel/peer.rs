//! One Sentinel: what it answers and announces.

use std::time::Duration;

use super::super::address::{Endpoint, HostPort, greeting};
use super::super::dialogue::Dialogue;
use super::super::errors;
use super::super::resp::{Command, Reply};
use super::Monitored;
use crate::error::StoreError;

/// How long one Sentinel may take to answer, connecting included. A majority of the others need not wait for it.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(1);

/// How long a subscription may be silent before the Sentinel is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(3);

/// What an answer may cost in memory.
const LARGEST: usize = 256 * 1024;

/// What a Sentinel has answered.
#[derive(Debug)]
pub(super) struct Peer {
    /// Its id. One Sentinel may be known by several addresses, or by one that cannot be reached from here.
    pub(super) id: String,
    /// None if it watches no master of that name.
    pub(super) master: Option<HostPort>,
    /// The other Sentinels that it knows.
    pub(super) others: Vec<Other>,
}

/// A Sentinel that another one has named.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Other {
    pub(super) id: String,
    pub(super) at: HostPort,
}

impl Peer {
    /// Asks one Sentinel for the master, and for the other Sentinels.
    pub(super) async fn ask(at: &HostPort, monitored: &Monitored) -> Result<Self, StoreError> {
        let endpoint = &monitored.endpoint(at)?;
        let asking = async {
            let mut dialogue = connect(endpoint, monitored).await?;
            let name = &monitored.master;
            let ask = |what: &str| Command::new("SENTINEL").arg(what).arg(name);
            let master = dialogue.request(&ask("GET-MASTER-ADDR-BY-NAME")).await?;
            let master = read_address(endpoint, &master)?;
            // Refused, its address is as good as an id.
            let id = dialogue.request(&Command::new("SENTINEL").arg("MYID")).await?;
            let id = match &id {
                Reply::Text(_) => id.text().unwrap_or_default().to_owned(),
                _ => endpoint.to_string(),
            };
            if master.is_none() {
                return Ok(Self { id, master, others: Vec::new() });
            }
            // Refused, as by a user without that right, there are those of the URL.
            let others = dialogue.request(&ask("SENTINELS")).await?;
            Ok(Self { id, master, others: read_others(&others) })
        };
        within(endpoint, asking).await
    }

    /// Follows the announcements of one Sentinel, until its connection is lost.
    pub(super) async fn follow(
        endpoint: &Endpoint,
        monitored: &Monitored,
        announce: impl Fn(HostPort),
    ) {
        let subscribing = async {
            let mut dialogue = connect(endpoint, monitored).await?;
            let subscribed =
                dialogue.request(&Command::new("SUBSCRIBE").arg("+switch-master")).await?;
            match subscribed {
                Reply::Error(error) => Err(errors::of_server(&error)),
                _ => Ok(dialogue),
            }
        };
        let Ok(mut dialogue) = within(endpoint, subscribing).await else { return };
        let mut is_asked = false;
        loop {
            match tokio::time::timeout(PING_EVERY, dialogue.next()).await {
                Ok(Ok(reply)) => {
                    is_asked = false;
                    read_switch(&reply, &monitored.master).into_iter().for_each(&announce);
                }
                Ok(Err(_)) => return,
                Err(_) if is_asked => return,
                Err(_) => {
                    is_asked = true;
                    if dialogue.write(&Command::new("PING")).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

async fn connect(endpoint: &Endpoint, monitored: &Monitored) -> Result<Dialogue, StoreError> {
    let mut dialogue = Dialogue::open(endpoint, LARGEST).await?;
    for command in greeting(&monitored.login) {
        if let Reply::Error(error) = dialogue.request(&command).await? {
            let what = format!("could not log in to the Sentinel at {endpoint}: {error}");
            return Err(errors::of_greeting(what, &error));
        }
    }
    Ok(dialogue)
}

async fn within<T>(
    endpoint: &Endpoint,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let slow = || {
        let what = format!("the Sentinel at {endpoint} did not answer within {ANSWER_TIME:?}");
        Err(StoreError::refused(what))
    };
    tokio::time::timeout(ANSWER_TIME, work).await.unwrap_or_else(|_| slow())
}

/// `[host, port]`, or nil for an unknown name.
fn read_address(endpoint: &Endpoint, reply: &Reply) -> Result<Option<HostPort>, StoreError> {
    match reply {
        Reply::Nil => Ok(None),
        Reply::Array(words) if words.is_empty() => Ok(None),
        Reply::Error(error) => {
            let what = format!("the Sentinel at {endpoint} refuses to answer: {error}");
            Err(errors::of_greeting(what, error))
        }
        reply => {
            let words: Option<Vec<_>> =
                reply.array().map(|it| it.iter().filter_map(Reply::text).collect());
            let read = words.and_then(|words| read_host_port(words.first()?, words.get(1)?));
            let what = || format!("{endpoint} does not answer as a Sentinel does");
            read.map(Some).ok_or_else(|| StoreError::refused(what()))
        }
    }
}

/// A list of `[field, value, …]`, one for each other Sentinel.
fn read_others(reply: &Reply) -> Vec<Other> {
    let read = |other: &Reply| {
        let words: Vec<_> = other.array()?.iter().map(|it| it.text().unwrap_or("")).collect();
        let value = |field: &str| {
            let mut pairs = words.chunks_exact(2);
            pairs.find_map(|pair| (pair[0] == field).then_some(pair[1]))
        };
        let at = read_host_port(value("ip")?, value("port")?)?;
        let id = value("runid")
            .filter(|id| !id.is_empty())
            .map_or_else(|| at.to_string(), str::to_owned);
        Some(Other { id, at })
    };
    reply.array().unwrap_or_default().iter().filter_map(read).collect()
}

/// The address that a master of this name has left: `name old-host old-port new-host new-port`.
fn read_switch(reply: &Reply, master: &str) -> Option<HostPort> {
    let [kind, _, message] = reply.array()? else { return None };
    if kind.text() != Some("message") {
        return None;
    }
    let words: Vec<_> = message.text()?.split(' ').collect();
    match words[..] {
        [name, host, port, _, _] if name == master => read_host_port(host, port),
        _ => None,
    }
}

fn read_host_port(host: &str, port: &str) -> Option<HostPort> {
    let port = port.parse().ok().filter(|port| *port != 0)?;
    (!host.is_empty()).then(|| HostPort { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Reply {
        Reply::Text(text.into())
    }

    fn words(words: &[&str]) -> Reply {
        Reply::Array(words.iter().map(|word| text(word)).collect())
    }

    #[test]
    fn an_announcement_counts_for_its_master_alone() {
        let message = |what: &str| words(&["message", "+switch-master", what]);
        let old = HostPort { host: "10.0.0.1".into(), port: 6379 };
        let switch = "main 10.0.0.1 6379 10.0.0.2 6380";
        assert_eq!(read_switch(&message(switch), "main"), Some(old));
        assert_eq!(read_switch(&message(switch), "other"), None);
        assert_eq!(read_switch(&words(&["subscribe", "+switch-master", "1"]), "main"), None);
        assert_eq!(read_switch(&message("main 10.0.0.1 none 10.0.0.2 6380"), "main"), None);
    }

    #[test]
    fn others_are_read_from_their_fields() {
        let other = words(&["name", "x", "ip", "10.0.0.3", "port", "26379", "flags", "sentinel"]);
        let garbage = words(&["ip", "10.0.0.4"]);
        let found = read_others(&Reply::Array(vec![other, garbage, Reply::Nil]));
        let at = HostPort { host: "10.0.0.3".into(), port: 26379 };
        assert_eq!(found, [Other { id: "10.0.0.3:26379".into(), at }]);
        assert_eq!(read_others(&Reply::Error("NOPERM".into())), []);
    }

    #[test]
    fn an_address_is_read_or_refused() {
        let endpoint = Endpoint::Tcp("s1".into(), 26379);
        let read = |reply| read_address(&endpoint, &reply);
        let master = HostPort { host: "10.0.0.1".into(), port: 6379 };
        assert_eq!(read(words(&["10.0.0.1", "6379"])).unwrap(), Some(master));
        assert_eq!(read(Reply::Nil).unwrap(), None);
        assert!(read(words(&["10.0.0.1", "0"])).is_err());
        assert!(read(Reply::Error("ERR unknown command".into())).is_err());
    }
}
