//! The connection to the store, which is made when it is first needed.
//!
//! Requests that need it at the same time share one attempt, and its error: a store that does not answer would otherwise cost
//! each of them the time of all attempts before its own. An attempt goes on when its requests are gone, so that clients with
//! less patience than it takes do not keep the server from ever connecting.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tenure::{Error, Tenure};
use tokio::sync::watch;

/// A connection that may not be there yet.
#[derive(Default)]
pub(crate) struct Link {
    connected: Arc<OnceLock<Tenure>>,
    attempt: Mutex<Option<Attempt>>,
}

/// None until the attempt has ended.
type Attempt = watch::Receiver<Option<Result<(), Arc<str>>>>;

impl Link {
    /// The client, if it is connected.
    pub(crate) fn get(&self) -> Option<&Tenure> {
        self.connected.get()
    }

    /// The client, after an attempt to connect if there is none. An error is a sentence.
    pub(crate) async fn get_or_connect<F>(
        &self,
        connect: impl FnOnce() -> F,
    ) -> Result<&Tenure, Arc<str>>
    where
        F: Future<Output = Result<Tenure, Error>> + Send + 'static,
    {
        if let Some(tenure) = self.connected.get() {
            return Ok(tenure);
        }
        let mut attempt = self.join(connect);
        let given_up = || Arc::from("the attempt to connect to the store was given up");
        match attempt.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(Err(why))) => Err(why.clone()),
            _ => self.connected.get().ok_or_else(given_up),
        }
    }

    /// The attempt that is being made, or a new one.
    fn join<F>(&self, connect: impl FnOnce() -> F) -> Attempt
    where
        F: Future<Output = Result<Tenure, Error>> + Send + 'static,
    {
        let mut last = self.attempt.lock().unwrap_or_else(PoisonError::into_inner);
        // The sender is gone if its runtime was: then no result comes.
        let is_running = |it: &Attempt| it.borrow().is_none() && it.has_changed().is_ok();
        if let Some(running) = last.as_ref().filter(|it| is_running(it)) {
            return running.clone();
        }
        let (ended, attempt) = watch::channel(None);
        let (connected, connecting) = (self.connected.clone(), connect());
        tokio::spawn(async move {
            let result = connecting.await.map_err(|error| Arc::from(error.to_string()));
            let result = result.map(|tenure| drop(connected.set(tenure)));
            ended.send_replace(Some(result));
        });
        *last = Some(attempt.clone());
        attempt
    }
}
