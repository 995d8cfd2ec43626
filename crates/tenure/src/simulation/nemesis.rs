//! The faults of a simulation.

use std::time::Duration;

use super::workload::pass;
use super::{World, lock};

pub(super) struct Nemesis<'a> {
    world: &'a mut World,
}

impl<'a> Nemesis<'a> {
    pub(super) fn new(world: &'a mut World) -> Self {
        Self { world }
    }

    /// Injects faults until the time for them is over.
    pub(super) async fn run(mut self) {
        while tokio::time::Instant::now() < self.world.over {
            let pause = self.world.random.u64(20..800);
            pass(Duration::from_millis(pause)).await;
            self.inject().await;
            lock(&self.world.judge).counts.faults += 1;
        }
    }

    async fn inject(&mut self) {
        let world = &mut *self.world;
        let at = world.random.usize(..world.servers.len());
        let server = world.servers[at].clone();
        let client = world.random.usize(..world.clients);
        match world.random.u32(..12) {
            0 | 1 => server.cut(client, false),
            2 | 3 => server.cut(client, true),
            4..7 => server.silence(client, Duration::from_millis(world.random.u64(50..4_000))),
            7 => server.forget_scripts(),
            8 | 9 => self.restart(at, true).await,
            10 => self.lose_data().await,
            _ => {
                world.crash();
                world.start_client().await;
            }
        }
    }

    async fn restart(&mut self, at: usize, keeps: bool) {
        let (server, time) = (self.world.servers[at].clone(), self.world.random.u64(..1_000));
        server.stop(keeps);
        pass(Duration::from_millis(time)).await;
        server.start_again();
    }

    /// A single server loses its data: its holders are notified, and fences go on.
    async fn lose_data(&mut self) {
        if self.world.servers.len() == 1 {
            lock(&self.world.judge).excuse_holders();
            self.restart(0, false).await;
            // Grants of the time before may have been on their way.
            lock(&self.world.judge).excuse_holders();
        }
    }
}
