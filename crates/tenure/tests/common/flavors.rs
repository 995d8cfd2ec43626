//! Tests on every kind of server.

use tenure_testkit::Flavor;

/// Runs a test on all servers, at the same time.
pub(crate) fn on_all<T: Future<Output = ()>>(test: fn(Flavor) -> T) {
    let run = |flavor| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap().block_on(test(flavor));
    };
    std::thread::scope(|scope| {
        let running: Vec<_> =
            Flavor::wanted().map(|flavor| (flavor, scope.spawn(move || run(flavor)))).collect();
        for (flavor, thread) in running {
            thread.join().unwrap_or_else(|_| panic!("on {flavor}"));
        }
    });
}
