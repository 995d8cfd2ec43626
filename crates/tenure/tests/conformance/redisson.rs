//! Stores in Redisson's format: of a lock without a fence and of one with it, on one server and on a cluster.

use tenure::Tenure;
use tenure::blocking::block_on;
use tenure::engine::{Engine, Features, RedisEngine};

use super::clusters::OneCluster;
use super::fixture::Fixture;
use super::servers::{OneServer, Redis, Redis6, Valkey, Which};

/// A store whose locks Java services share.
pub(crate) struct Redisson<S, const IS_FENCED: bool>(S);

pub(crate) type OnRedis = Redisson<OneServer<Redis>, false>;
pub(crate) type OnRedis6 = Redisson<OneServer<Redis6>, false>;
pub(crate) type OnValkey = Redisson<OneServer<Valkey>, true>;
pub(crate) type OnCluster = Redisson<OneCluster<Redis>, true>;

/// A store with a URL to which the name of a protocol can be added.
pub(crate) trait Named: Fixture {
    fn url(&self) -> String;
}

impl<W: Which> Named for OneServer<W> {
    fn url(&self) -> String {
        self.server().url()
    }
}

impl<W: Which> Named for OneCluster<W> {
    fn url(&self) -> String {
        self.cluster().url_of_one()
    }
}

impl<S: Named, const IS_FENCED: bool> Redisson<S, IS_FENCED> {
    fn connect(&self) -> RedisEngine {
        let url = format!("{}?protocol=redisson&fenced={IS_FENCED}", self.0.url());
        block_on(RedisEngine::connect(&url)).unwrap()
    }
}

impl<S: Named, const IS_FENCED: bool> Fixture for Redisson<S, IS_FENCED> {
    fn start() -> Self {
        Self(S::start())
    }

    fn is_left_out() -> bool {
        S::is_left_out()
    }

    fn features(&self) -> Features {
        self.connect().capabilities().features
    }

    fn engine(&self) -> Box<dyn Engine> {
        Box::new(self.connect())
    }

    fn tenure(&self) -> Tenure {
        Tenure::builder().engine(self.connect()).unwrap()
    }
}
