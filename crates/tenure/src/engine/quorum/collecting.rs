//! Questions to all nodes that need no vote: the answers of a majority, and of the others if they are fast.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;

use super::arrival::on_arrival;
use super::{Quorum, pause};
use crate::engine::Answer;
use crate::error::StoreError;
use crate::foreign;
use crate::sync::lock;

/// How long the other nodes may take once a majority has answered.
const GRACE: Duration = Duration::from_millis(100);

/// The answers of the nodes, by node.
pub(super) type Collected<T> = Vec<Option<Result<T, StoreError>>>;

struct Collecting<T> {
    answers: Collected<T>,
    done: Option<oneshot::Sender<Collected<T>>>,
}

impl Quorum {
    /// Collects the answers of the nodes. An error if no majority has answered.
    pub(super) async fn collect<T: Clone + Send + Unpin + 'static>(
        self: Arc<Self>,
        answers: Vec<Answer<T>>,
    ) -> Result<Collected<T>, StoreError> {
        let collected = self.collect_all(answers).await;
        let count = collected.iter().flatten().filter(|answer| answer.is_ok()).count();
        if count >= self.size.majority() {
            return Ok(collected);
        }
        let error = |it: Option<Result<T, StoreError>>| it.and_then(Result::err);
        let errors: Vec<_> = collected.into_iter().map(error).collect();
        let is_unknown = errors.iter().flatten().any(StoreError::is_unknown);
        Err(self.failure(&errors, is_unknown))
    }

    /// The same, whatever they answer.
    pub(super) async fn collect_all<T: Clone + Send + Unpin + 'static>(
        self: &Arc<Self>,
        answers: Vec<Answer<T>>,
    ) -> Collected<T> {
        let (done, collected) = oneshot::channel();
        let empty = answers.iter().map(|_| None).collect();
        let collecting = Arc::new(Mutex::new(Collecting { answers: empty, done: Some(done) }));
        for (node, answer) in answers.into_iter().enumerate() {
            let (quorum, collecting) = (self.clone(), collecting.clone());
            on_arrival(answer, move |result| quorum.add(&collecting, node, result));
        }
        collected.await.unwrap_or_default()
    }

    fn add<T: Clone + Send + 'static>(
        &self,
        collecting: &Arc<Mutex<Collecting<T>>>,
        node: usize,
        result: Result<T, StoreError>,
    ) {
        let mut all = lock(collecting);
        all.answers[node] = Some(result);
        let answered = all.answers.iter().flatten().count();
        let succeeded = all.answers.iter().flatten().filter(|answer| answer.is_ok()).count();
        let is_last = answered == all.answers.len();
        let is_majority = succeeded == self.size.majority();
        drop(all);
        if is_last {
            finish(collecting);
        } else if is_majority {
            let collecting = collecting.clone();
            self.io.spawn(async move {
                pause(GRACE).await;
                finish(&collecting);
            });
        }
    }
}

fn finish<T: Clone>(collecting: &Mutex<Collecting<T>>) {
    let mut all = lock(collecting);
    let Some(done) = all.done.take() else { return };
    let answers = all.answers.clone();
    drop(all);
    foreign::call(|| drop(done.send(answers)));
}
