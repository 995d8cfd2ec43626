//! The keys of a simulated server, and the commands that Tenure uses, as Redis 7 performs them.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::reply::Reply;

type Text = Vec<u8>;

enum Value {
    Text(Text),
    Hash(BTreeMap<Text, Text>),
}

struct Key {
    value: Value,
    /// When it expires, in µs of the calendar.
    expires: Option<u64>,
}

/// A message of a script or a client, to be delivered to the subscribers of a channel.
pub(super) struct Message {
    pub(super) channel: Text,
    pub(super) text: Text,
}

#[derive(Default)]
pub(super) struct Database {
    keys: HashMap<Text, Key>,
    /// The calendar of the server in µs, for the current command: it stands still while a script runs.
    pub(super) time: u64,
    /// How many connections are subscribed to each channel.
    pub(super) subscribers: HashMap<Text, usize>,
    /// Published by the current command.
    pub(super) messages: Vec<Message>,
    /// The scripts that were loaded, by their hashes.
    pub(super) scripts: HashSet<String>,
}

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

fn wrong_type() -> Reply {
    Reply::Error(WRONG_TYPE.into())
}

fn number(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

impl Database {
    /// Performs a command that is not about connections and scripts.
    pub(super) fn perform(&mut self, words: &[Text]) -> Reply {
        let (name, words) = words.split_first().expect("a command has a name");
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        let outcome = match (name.as_str(), words) {
            ("TIME", []) => Some(self.time()),
            ("GET", [key]) => Some(self.get(key)),
            ("MGET", keys) => Some(Reply::Array(keys.iter().map(|key| self.text(key)).collect())),
            ("SET", [key, text, options @ ..]) => self.set(key, text, options),
            ("PSETEX", [key, time, text]) => self.put_for(key, text, time),
            ("SETRANGE", [key, from, text]) => self.set_range(key, from, text),
            ("EXISTS", [key]) => Some(Reply::Integer(self.find(key).is_some().into())),
            ("DEL", keys) => Some(self.delete(keys)),
            ("RENAME", [from, to]) => Some(self.rename(from, to)),
            ("PTTL", [key]) => Some(self.time_left(key)),
            ("PEXPIRE", [key, time]) => self.expire(key, time),
            ("HGET", [key, field]) => Some(self.hash_get(key, field)),
            ("HMGET", [key, fields @ ..]) => Some(self.hash_get_all(key, fields)),
            ("HSET", [key, pairs @ ..]) if pairs.len() % 2 == 0 => Some(self.hash_set(key, pairs)),
            ("HDEL", [key, fields @ ..]) => Some(self.hash_delete(key, fields)),
            ("HLEN", [key]) => Some(self.hash_length(key)),
            ("PUBLISH", [channel, text]) => Some(self.publish(channel, text)),
            ("PUBSUB", [what, channel]) if what == b"NUMSUB" => {
                let count = Reply::Integer(self.count(channel));
                Some(Reply::Array(vec![Reply::Text(channel.clone()), count]))
            }
            ("SCAN", [..]) => Some(self.scan()),
            _ => None,
        };
        outcome.unwrap_or_else(|| Reply::Error(format!("ERR the simulation cannot {name}")))
    }

    /// All data is lost.
    pub(super) fn lose(&mut self) {
        self.keys.clear();
    }

    /// The names of all keys.
    pub(super) fn names(&mut self) -> Vec<String> {
        let time = self.time;
        self.keys.retain(|_, key| key.expires.is_none_or(|expires| expires > time));
        self.keys.keys().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }

    fn time(&self) -> Reply {
        let parts = [self.time / 1_000_000, self.time % 1_000_000];
        Reply::Array(parts.iter().map(|part| Reply::Text(part.to_string().into())).collect())
    }

    /// A key that has not expired.
    fn find(&mut self, name: &[u8]) -> Option<&mut Key> {
        let is_over = self.keys.get(name)?.expires.is_some_and(|expires| expires <= self.time);
        if is_over {
            self.keys.remove(name);
            return None;
        }
        self.keys.get_mut(name)
    }

    fn put(&mut self, name: &[u8], value: Value, expires: Option<u64>) {
        self.keys.insert(name.to_vec(), Key { value, expires });
    }

    fn get(&mut self, key: &[u8]) -> Reply {
        match self.find(key).map(|key| &key.value) {
            None => Reply::Nil,
            Some(Value::Text(text)) => Reply::Text(text.clone()),
            Some(Value::Hash(_)) => wrong_type(),
        }
    }

    /// As MGET does: a key of another type counts as none.
    fn text(&mut self, key: &[u8]) -> Reply {
        match self.get(key) {
            Reply::Error(_) => Reply::Nil,
            text => text,
        }
    }

    fn set(&mut self, key: &[u8], text: &[u8], options: &[Text]) -> Option<Reply> {
        let (mut expires, mut is_new, mut keeps) = (None, false, false);
        let mut options = options.iter();
        while let Some(option) = options.next() {
            match &option[..] {
                b"PX" => expires = Some(self.after(options.next()?)?),
                b"NX" => is_new = true,
                b"KEEPTTL" => keeps = true,
                _ => return None,
            }
        }
        let before = self.find(key).map(|key| key.expires);
        if is_new && before.is_some() {
            return Some(Reply::Nil);
        }
        let expires = if keeps { before.flatten() } else { expires };
        self.put(key, Value::Text(text.to_vec()), expires);
        Some(Reply::Status("OK"))
    }

    /// So many ms from now.
    fn after(&self, time: &[u8]) -> Option<u64> {
        let time = u64::try_from(number(time)?).ok().filter(|time| *time > 0)?;
        Some(self.time + time * 1000)
    }

    fn put_for(&mut self, key: &[u8], text: &[u8], time: &[u8]) -> Option<Reply> {
        let expires = self.after(time)?;
        self.put(key, Value::Text(text.to_vec()), Some(expires));
        Some(Reply::Status("OK"))
    }

    fn set_range(&mut self, key: &[u8], from: &[u8], part: &[u8]) -> Option<Reply> {
        let from = usize::try_from(number(from)?).ok()?;
        let key = self.find(key)?;
        let Value::Text(text) = &mut key.value else { return Some(wrong_type()) };
        text.resize(text.len().max(from + part.len()), 0);
        text[from..from + part.len()].copy_from_slice(part);
        Some(Reply::Integer(text.len() as i64))
    }

    fn delete(&mut self, keys: &[Text]) -> Reply {
        let deleted = keys.iter().filter(|key| self.find(key).is_some()).count();
        keys.iter().for_each(|key| drop(self.keys.remove(key)));
        Reply::Integer(deleted as i64)
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) -> Reply {
        if self.find(from).is_none() {
            return Reply::Error("ERR no such key".into());
        }
        let key = self.keys.remove(from);
        self.keys.extend(key.map(|key| (to.to_vec(), key)));
        Reply::Status("OK")
    }

    fn time_left(&mut self, key: &[u8]) -> Reply {
        let time = self.time;
        Reply::Integer(match self.find(key).map(|key| key.expires) {
            None => -2,
            Some(None) => -1,
            Some(Some(expires)) => ((expires - time) / 1000) as i64,
        })
    }

    fn expire(&mut self, key: &[u8], time: &[u8]) -> Option<Reply> {
        let expires = self.after(time)?;
        let found = self.find(key);
        let is_found = found.is_some();
        found.into_iter().for_each(|key| key.expires = Some(expires));
        Some(Reply::Integer(is_found.into()))
    }

    fn hash(&mut self, key: &[u8]) -> Result<Option<&mut BTreeMap<Text, Text>>, Reply> {
        match self.find(key).map(|key| &mut key.value) {
            None => Ok(None),
            Some(Value::Hash(hash)) => Ok(Some(hash)),
            Some(Value::Text(_)) => Err(wrong_type()),
        }
    }

    fn hash_get(&mut self, key: &[u8], field: &[u8]) -> Reply {
        let hash = self.hash(key);
        hash.map_or_else(|wrong| wrong, |hash| Reply::of(hash.and_then(|hash| hash.get(field))))
    }

    fn hash_get_all(&mut self, key: &[u8], fields: &[Text]) -> Reply {
        match self.hash(key) {
            Err(wrong) => wrong,
            Ok(hash) => {
                let get = |field| Reply::of(hash.as_ref().and_then(|hash| hash.get(field)));
                Reply::Array(fields.iter().map(get).collect())
            }
        }
    }

    fn hash_set(&mut self, key: &[u8], pairs: &[Text]) -> Reply {
        if self.find(key).is_none() {
            self.put(key, Value::Hash(BTreeMap::new()), None);
        }
        match self.hash(key) {
            Ok(Some(hash)) => {
                let before = hash.len();
                hash.extend(pairs.chunks_exact(2).map(|it| (it[0].clone(), it[1].clone())));
                Reply::Integer((hash.len() - before) as i64)
            }
            Ok(None) => unreachable!("it was created"),
            Err(wrong) => wrong,
        }
    }

    fn hash_delete(&mut self, key: &[u8], fields: &[Text]) -> Reply {
        let (removed, is_empty) = match self.hash(key) {
            Err(wrong) => return wrong,
            Ok(None) => return Reply::Integer(0),
            Ok(Some(hash)) => {
                let removed = fields.iter().filter(|field| hash.remove(*field).is_some()).count();
                (removed, hash.is_empty())
            }
        };
        if is_empty {
            self.keys.remove(key);
        }
        Reply::Integer(removed as i64)
    }

    fn hash_length(&mut self, key: &[u8]) -> Reply {
        let length = self.hash(key).map(|hash| hash.map_or(0, |hash| hash.len()));
        length.map_or_else(|wrong| wrong, |length| Reply::Integer(length as i64))
    }

    fn count(&self, channel: &[u8]) -> i64 {
        self.subscribers.get(channel).map_or(0, |count| *count as i64)
    }

    fn publish(&mut self, channel: &[u8], text: &[u8]) -> Reply {
        self.messages.push(Message { channel: channel.to_vec(), text: text.to_vec() });
        Reply::Integer(self.count(channel))
    }

    /// All keys at once; the client selects those of locks itself.
    fn scan(&mut self) -> Reply {
        let names = self.names().into_iter().filter(|name| name.starts_with("tenure:{"));
        let names = names.map(|name| Reply::Text(name.into())).collect();
        Reply::Array(vec![Reply::Text(b"0".to_vec()), Reply::Array(names)])
    }
}
