//! Stores that are servers: each case has one of its own.

use std::marker::PhantomData;

use tenure::Tenure;
use tenure::blocking::block_on;
use tenure::engine::{Engine, RedisEngine};
use tenure_testkit::resp::Reply;
use tenure_testkit::{Builder, Flavor, Sentinels, Server, Tls};

use super::fixture::{Fixture, ms, pass};

/// A server of the case's own.
pub(crate) struct OneServer<W>(Server, PhantomData<fn() -> W>);

/// Which server it is.
pub(crate) trait Which {
    const FLAVOR: Flavor;

    fn builder() -> Builder {
        Server::builder().flavor(Self::FLAVOR)
    }
}

pub(crate) struct Redis;

impl Which for Redis {
    const FLAVOR: Flavor = Flavor::Redis;
}

pub(crate) struct Redis6;

impl Which for Redis6 {
    const FLAVOR: Flavor = Flavor::Redis6;
}

pub(crate) struct Valkey;

impl Which for Valkey {
    const FLAVOR: Flavor = Flavor::Valkey;
}

/// Redis alone: the Valkey that `cargo xtask` gets for the tests is built without TLS.
pub(crate) struct RedisTls;

impl Which for RedisTls {
    const FLAVOR: Flavor = Flavor::Redis;

    fn builder() -> Builder {
        Redis::builder().tls(Tls::default())
    }
}

impl<W> OneServer<W> {
    pub(crate) fn server(&self) -> &Server {
        &self.0
    }

    fn connect(&self) -> RedisEngine {
        block_on(RedisEngine::connect(&self.0.url())).unwrap()
    }
}

impl<W: Which> Fixture for OneServer<W> {
    fn start() -> Self {
        Self(W::builder().start(), PhantomData)
    }

    fn is_left_out() -> bool {
        W::FLAVOR.is_left_out()
    }

    fn engine(&self) -> Box<dyn Engine> {
        Box::new(self.connect())
    }

    fn tenure(&self) -> Tenure {
        Tenure::builder().engine(self.connect()).unwrap()
    }

    async fn until_clients(&self, count: usize) {
        until_clients(&self.0, count).await;
    }
}

/// A master of the case's own, and a Sentinel that names it.
pub(crate) struct OneMaster(Sentinels);

impl OneMaster {
    fn connect(&self) -> RedisEngine {
        block_on(RedisEngine::connect(&self.0.url())).unwrap()
    }
}

impl Fixture for OneMaster {
    fn start() -> Self {
        Self(Sentinels::alone(Flavor::Redis))
    }

    fn is_left_out() -> bool {
        Flavor::Redis.is_left_out()
    }

    fn engine(&self) -> Box<dyn Engine> {
        Box::new(self.connect())
    }

    fn tenure(&self) -> Tenure {
        Tenure::builder().engine(self.connect()).unwrap()
    }

    async fn until_clients(&self, count: usize) {
        until_clients(&self.0.servers[0], count).await;
    }
}

pub(crate) async fn until_clients(server: &Server, count: usize) {
    let mut connection = server.connect().unwrap();
    loop {
        let reply = connection.command(&["PUBSUB", "CHANNELS", "tenure:wake:*"]).unwrap();
        match reply {
            Reply::Array(Some(channels)) if channels.len() == count => return,
            _ => pass(ms(1)).await,
        }
    }
}
