//! Fences in Redis, with the client that the program has.
//!
//! This crate brings no client: implement [`RunScript`] for yours, which is one `EVAL`. The scripts are
//! [`REDIS_REGISTER`] and [`REDIS_SET`] of [`tenure::fenced`]. What they cannot know: a server that evicts keys, or loses
//! its data, forgets fences, and an old holder is admitted again until a newer one registers. Set
//! `maxmemory-policy noeviction`. The keys have no expiry; there is one for each resource.

use std::fmt;
use std::future::Future;

use tenure::fenced::{REDIS_REGISTER, REDIS_SET};
use tenure::{Fence, LockName};

use crate::error::{self, Cause, Error, Overtaken};

/// Reads the fence by which a holder was overtaken.
const NEWEST: &str = include_str!("redis/newest.lua");

/// A Redis client that runs a script.
pub trait RunScript: Send + Sync {
    /// Runs `EVAL script keys… arguments…` and returns its reply, an integer.
    ///
    /// # Errors
    /// The client's own error, if the server refuses, or its reply is missing or is not an integer.
    fn run_script(
        &self,
        script: &str,
        keys: &[&str],
        arguments: &[&[u8]],
    ) -> impl Future<Output = Result<i64, Box<dyn std::error::Error + Send + Sync>>> + Send;
}

/// The fences of some resources, each in a key of its own.
///
/// # Examples
///
/// With a client that only counts:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tenure::{Fence, LockName};
/// use tenure_fenced::redis::{RedisFences, RunScript};
///
/// struct Client;
///
/// impl RunScript for Client {
///     async fn run_script(
///         &self,
///         script: &str,
///         keys: &[&str],
///         arguments: &[&[u8]],
///     ) -> Result<i64, Box<dyn std::error::Error + Send + Sync>> {
///         // Here: EVAL script, the number of keys, keys, arguments.
///         assert_eq!((keys, arguments), (&["fence:stock"][..], &[&b"7"[..]][..]));
///         Ok(1)
///     }
/// }
///
/// let fences = RedisFences::new(Client, "fence:");
/// fences.register(&LockName::new("stock")?, Fence::from_value(7)).await?;
/// # Ok(())
/// # }
/// ```
pub struct RedisFences<C> {
    client: C,
    prefix: Box<str>,
}

impl<C: RunScript> RedisFences<C> {
    /// The fence of a resource is in the key `prefix` + its name.
    pub fn new(client: C, prefix: &str) -> Self {
        Self { client, prefix: prefix.into() }
    }

    /// Registers the fence: every earlier holder is refused. Call it before the data is read.
    ///
    /// # Errors
    /// [`Error::Overtaken`] if a newer holder has registered; [`Error::Store`] if the client fails, and then the fence
    /// may be registered or not.
    pub async fn register(&self, resource: &LockName, fence: Fence) -> Result<(), Error> {
        let digits = error::to_stored(resource, fence)?.to_string();
        let key = self.key(resource);
        let reply = self.client.run_script(REDIS_REGISTER, &[&key], &[digits.as_bytes()]).await;
        self.judge(resource, fence, reply).await
    }

    /// Sets the value of a key, unless the holder was overtaken. In a cluster, `key` and the name of the resource need
    /// one hash tag.
    ///
    /// # Errors
    /// As for [`register`](Self::register); after [`Error::Store`] the value may be set or not. Also if `key` is that of the
    /// fence.
    pub async fn set(
        &self,
        resource: &LockName,
        fence: Fence,
        key: &str,
        value: &[u8],
    ) -> Result<(), Error> {
        let digits = error::to_stored(resource, fence)?.to_string();
        let (keys, arguments) = ([key, &self.key(resource)], [digits.as_bytes(), value]);
        let reply = self.client.run_script(REDIS_SET, &keys, &arguments).await;
        self.judge(resource, fence, reply).await
    }

    fn key(&self, resource: &LockName) -> String {
        format!("{}{}", self.prefix, resource.as_str())
    }

    async fn judge(
        &self,
        resource: &LockName,
        fence: Fence,
        reply: Result<i64, Cause>,
    ) -> Result<(), Error> {
        match reply.map_err(|cause| Error::store(resource, cause))? {
            1 => Ok(()),
            0 => Err(self.refusal(resource, fence).await),
            other => {
                let what = format!("the script returned {other}, which is neither 0 nor 1");
                Err(Error::store(resource, what))
            }
        }
    }

    /// Why the holder was refused. Asked separately, so that the common case stays one call; an even newer fence that
    /// came in between is as good.
    async fn refusal(&self, resource: &LockName, fence: Fence) -> Error {
        let newest = self.client.run_script(NEWEST, &[&self.key(resource)], &[]).await;
        let newest = newest
            .map_err(|cause| Error::store(resource, cause))
            .and_then(|stored| error::from_stored(resource, stored));
        match newest {
            Ok(newest) if newest > fence => Overtaken::new(resource, fence, newest).into(),
            Ok(_) => Error::store(resource, "the server lost the fence while it was checked"),
            Err(error) => error,
        }
    }
}

impl<C> fmt::Debug for RedisFences<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisFences").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
