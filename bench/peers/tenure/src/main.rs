//! Locks with Tenure, on one server or on a quorum of several.

use std::time::Duration;

use protocol::{Caller, Options, Work};
use tenure::engine::QuorumEngine;
use tenure::{Guard, Tenure};

struct Client(Tenure);

impl Caller for Client {
    type Guard = Guard;

    async fn acquire(&self, name: &str) -> Guard {
        self.0.lock(name).acquire().await.expect("a lock")
    }

    async fn release(&self, guard: Guard) {
        guard.release().await.expect("a release");
    }
}

fn main() {
    let options = Options::parse();
    let runtime = protocol::runtime();
    let url = url(&options.urls);
    if options.work == Work::Prepare {
        let marking = QuorumEngine::mark_nodes(&url, Some(Duration::from_secs(60)), false);
        runtime.block_on(marking).expect("new servers");
        return;
    }
    let builder = Tenure::builder().read_on_this_runtime();
    let tenure = runtime.block_on(builder.connect(&url)).expect("a client");
    protocol::run(&runtime, "0.1.0", &options, |_| Client(tenure.clone()));
}

/// One server, or several that are a quorum.
fn url(urls: &[String]) -> String {
    match urls {
        [one] => one.clone(),
        several => {
            let hosts = several.iter().map(|url| url.strip_prefix("redis://").unwrap_or(url));
            format!("redis+quorum://{}", hosts.collect::<Vec<_>>().join(","))
        }
    }
}
