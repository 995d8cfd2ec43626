//! The server, the Java process and the client that the tests share.

use std::sync::OnceLock;
use std::time::Duration;

use tenure::Tenure;
use tenure::blocking::block_on;
use tenure_testkit::{Agent, Codec, Redisson, Server};

pub(crate) const LONG: Duration = Duration::from_secs(20);

/// A waiter is woken within this time.
pub(crate) const SOON: Duration = Duration::from_millis(100);

/// A lease that is renewed.
pub(crate) const KEPT: Duration = Duration::from_secs(6);

pub(crate) struct Shared {
    pub(crate) server: Server,
    pub(crate) java: Agent,
    pub(crate) tenure: Tenure,
}

/// Whether this is the long run.
pub(crate) fn is_long() -> bool {
    std::env::var_os("TENURE_LONG").is_some()
}

/// None without Java. It ends with the process.
pub(crate) fn shared() -> Option<&'static Shared> {
    static SHARED: OnceLock<Option<Shared>> = OnceLock::new();
    let start = || {
        let redisson = Redisson::for_test()?;
        let server = Server::builder().on_port().start();
        let java = redisson.start(server.port().unwrap(), false, Codec::Default);
        let tenure = connect(&server.url());
        Some(Shared { server, java, tenure })
    };
    SHARED.get_or_init(start).as_ref()
}

/// A client in Redisson's format.
pub(crate) fn connect(url: &str) -> Tenure {
    let mark = if url.contains('?') { '&' } else { '?' };
    block_on(Tenure::connect(&format!("{url}{mark}protocol=redisson"))).unwrap()
}

pub(crate) fn pass(time: Duration) {
    std::thread::sleep(time);
}

pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
