//! One suite for every engine: a new engine is a fixture and an entry here.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[macro_use]
mod conformance {
    #[macro_use]
    pub(crate) mod suite;
    #[cfg(feature = "redis")]
    pub(crate) mod clusters;
    pub(crate) mod fixture;
    #[cfg(feature = "local")]
    pub(crate) mod folders;
    #[cfg(feature = "redis")]
    pub(crate) mod quorums;
    #[cfg(feature = "redis")]
    pub(crate) mod redisson;
    #[cfg(feature = "redis")]
    pub(crate) mod servers;

    pub(crate) mod announcements;
    pub(crate) mod elections;
    pub(crate) mod exclusion;
    pub(crate) mod fencing;
    pub(crate) mod gatherings;
    pub(crate) mod guards;
    pub(crate) mod idempotence;
    pub(crate) mod identity;
    pub(crate) mod leases;
    pub(crate) mod locks;
    pub(crate) mod promises;
    pub(crate) mod proposals;
    pub(crate) mod queue;
    pub(crate) mod readers;
    pub(crate) mod records;
    pub(crate) mod reentry;
    pub(crate) mod semaphores;
    pub(crate) mod several;
}

conformance_suite!(memory, crate::conformance::fixture::Memory);
#[cfg(feature = "local")]
conformance_suite!(local, crate::conformance::folders::Local);
#[cfg(feature = "redis")]
conformance_suite!(
    redis,
    crate::conformance::servers::OneServer<crate::conformance::servers::Redis>
);
#[cfg(feature = "redis")]
conformance_suite!(
    redis_6,
    crate::conformance::servers::OneServer<crate::conformance::servers::Redis6>
);
#[cfg(feature = "redis")]
conformance_suite!(
    valkey,
    crate::conformance::servers::OneServer<crate::conformance::servers::Valkey>
);
#[cfg(feature = "redis")]
conformance_suite!(
    redis_tls,
    crate::conformance::servers::OneServer<crate::conformance::servers::RedisTls>
);
#[cfg(feature = "redis")]
conformance_suite!(quorum, quorum crate::conformance::quorums::FiveServers);
#[cfg(feature = "redis")]
conformance_suite!(memory_quorum, quorum crate::conformance::fixture::MemoryQuorum);
#[cfg(feature = "redis")]
conformance_suite!(redisson, quorum crate::conformance::redisson::OnRedis);
#[cfg(feature = "redis")]
conformance_suite!(redisson_6, quorum crate::conformance::redisson::OnRedis6);
#[cfg(feature = "redis")]
conformance_suite!(redisson_valkey, quorum crate::conformance::redisson::OnValkey);
#[cfg(feature = "redis")]
conformance_suite!(redisson_cluster, quorum crate::conformance::redisson::OnCluster);
#[cfg(feature = "redis")]
conformance_suite!(sentinel, crate::conformance::servers::OneMaster);
#[cfg(feature = "redis")]
conformance_suite!(
    redis_cluster,
    crate::conformance::clusters::OneCluster<crate::conformance::servers::Redis>
);
#[cfg(feature = "redis")]
conformance_suite!(
    valkey_cluster,
    crate::conformance::clusters::OneCluster<crate::conformance::servers::Valkey>
);
