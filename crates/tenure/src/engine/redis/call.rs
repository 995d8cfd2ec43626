//! Calls of scripts, by their hash, or with their text if the server does not have them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;

use super::batch::Common;
use super::errors::{is_forbidden, is_missing_script, of_server};
use super::link::{Link, closed};
use super::redirect;
use super::resp::{Command, Reply};
use super::scripts::Script;
use super::wire::Done;
use crate::core::name::LockName;
use crate::error::StoreError;
use crate::sync::lock;

/// How often a script is loaded for one call by a user who may not run EVAL: each time, the server's script cache may
/// be flushed before the call.
const LOADS: u32 = 8;

/// A call of a script.
pub(super) struct Call {
    script: &'static Script,
    number: u64,
    nonce: String,
    /// A redirection is an answer: the server is a node of a cluster.
    is_redirectable: bool,
    pub(super) command: Command,
}

/// The outcome of a call that was sent once.
pub(super) enum CallOutcome {
    /// The server does not have the script, and so has not run it.
    MissingScript,
    Answered(Result<Reply, StoreError>),
}

/// Called with the outcome of a call that was sent once.
pub(super) type OnOutcome = Box<dyn FnOnce(Arc<Call>, CallOutcome) + Send>;

impl Link {
    /// The arguments that all calls of a client have in common.
    pub(super) fn common<'a>(&self, client: &'a str) -> Common<'a> {
        Common { client, retention: self.retention }
    }

    /// A call of a script on some locks, to which the operation's own arguments are added.
    pub(super) fn prepare<'a>(
        &self,
        script: &'static Script,
        names: impl ExactSizeIterator<Item = &'a LockName>,
        client: &str,
    ) -> Call {
        let script = self.variant(script);
        let number = self.nonce.fetch_add(1, Ordering::Relaxed);
        let nonce = number.to_string();
        let mut command = Command::new("EVALSHA").arg(&script.hash).arg(names.len().to_string());
        names.for_each(|name| command.push(self.protocol.lock_key(name)));
        command.push(if self.protocol.is_redisson() {
            format!("{nonce} {client} {}", u8::from(self.protocol.has_fences()))
        } else {
            format!("{nonce} {client} {}", self.retention)
        });
        Call { script, number, nonce, is_redirectable: self.is_member(), command }
    }

    /// A call of a script's plain case on locks of several slots. The first key is declared; the others follow the
    /// operations' own arguments.
    pub(super) fn prepare_spread(
        &self,
        script: &'static Script,
        names: &[&LockName],
        client: &str,
        add_arguments: impl FnOnce(&mut Command),
    ) -> Call {
        let mut call = self.prepare(script, names.iter().take(1).copied(), client);
        add_arguments(&mut call.command);
        names.iter().skip(1).for_each(|name| call.command.push(self.protocol.lock_key(name)));
        call.command.push(names.len().to_string());
        call
    }

    /// Loads a script for later calls. A server that refuses it refuses those as well.
    pub(super) fn load(&self, script: &'static Script) {
        self.send(&Command::new("SCRIPT").arg("LOAD").arg(&script.text), Box::new(|_| ()));
    }

    /// The script as it is run on this server.
    pub(super) fn variant(&self, script: &'static Script) -> &'static Script {
        script.on_server(self.marker.is_some(), self.protocol)
    }

    /// Runs a script, sending its text if the server does not have it, and checks that the answer belongs to
    /// this call.
    pub(super) fn call(self: &Arc<Self>, call: Call, done: Done) {
        let link = self.clone();
        self.call_once(
            call,
            Box::new(move |call, outcome| match outcome {
                CallOutcome::MissingScript if link.is_text_sent_since(call.script, &call) => {
                    link.call_again(call, done);
                }
                CallOutcome::MissingScript => link.call_with_text(call, done),
                CallOutcome::Answered(result) => done(result),
            }),
        );
    }

    /// All arguments of a call are there: only the marker of a quorum follows.
    fn complete(&self, mut call: Call) -> Arc<Call> {
        self.marker.iter().for_each(|marker| call.command.push(marker.as_str()));
        Arc::new(call)
    }

    /// Runs a script that the server is expected to have.
    pub(super) fn call_once(self: &Arc<Self>, call: Call, on_outcome: OnOutcome) {
        let call = self.complete(call);
        let sent = call.clone();
        let done = Box::new(move |result: Result<Reply, StoreError>| match result {
            Ok(reply) if is_missing_script(&reply) => on_outcome(call, CallOutcome::MissingScript),
            result => {
                let answer = call.answer(result);
                on_outcome(call, CallOutcome::Answered(answer));
            }
        });
        self.send(&sent.command, done);
    }

    /// Runs a script, sending its text.
    pub(super) fn call_with_script(self: &Arc<Self>, call: Call, done: Done) {
        self.clone().call_with_text(self.complete(call), done);
    }

    /// Whether the script's text was sent after this call. Of many calls that were in flight when the server lost its
    /// scripts, one carries the text.
    pub(super) fn is_text_sent_since(&self, script: &'static Script, call: &Call) -> bool {
        lock(&self.texts_sent)
            .get(&*self.variant(script).hash)
            .is_some_and(|sent| *sent > call.number)
    }

    fn call_again(self: Arc<Self>, call: Arc<Call>, on_answer: Done) {
        let (link, sent) = (self.clone(), call.clone());
        let done = Box::new(move |result: Result<Reply, StoreError>| match result {
            Ok(reply) if is_missing_script(&reply) => link.call_with_text(call, on_answer),
            result => on_answer(call.answer(result)),
        });
        self.send(&sent.command, done);
    }

    /// Sends the text with the call: loaded by a command before, the script could be flushed again in between.
    fn call_with_text(self: Arc<Self>, call: Arc<Call>, on_answer: Done) {
        lock(&self.texts_sent).insert(&call.script.hash, self.nonce.load(Ordering::Relaxed));
        let command =
            call.command.with_head(["EVALSHA", &call.script.hash], ["EVAL", &call.script.text]);
        let link = self.clone();
        let done = Box::new(move |result: Result<Reply, StoreError>| match result {
            Ok(reply) if is_forbidden(&reply) => link.load_and_call(call, on_answer, LOADS),
            result => on_answer(call.answer(result)),
        });
        self.send(&command, done);
    }

    /// For a user who may run SCRIPT LOAD but not EVAL.
    fn load_and_call(self: Arc<Self>, call: Arc<Call>, on_answer: Done, loads: u32) {
        self.load(call.script);
        let (link, sent) = (self.clone(), call.clone());
        let done = Box::new(move |result: Result<Reply, StoreError>| match result {
            Ok(reply) if is_missing_script(&reply) && loads > 1 => {
                link.load_and_call(call, on_answer, loads - 1);
            }
            result => on_answer(call.answer(result)),
        });
        self.send(&sent.command, done);
    }

    /// Runs a script, and awaits its answer. With `is_asking`, its slot is in transit to this node: the text is sent along,
    /// because ASKING holds for one command.
    pub(super) async fn run(
        self: &Arc<Self>,
        mut call: Call,
        is_asking: bool,
    ) -> Result<Reply, StoreError> {
        let (done, answer) = oneshot::channel();
        let done = Box::new(|result| drop(done.send(result)));
        call.command.is_asking = is_asking;
        match is_asking {
            true => self.call_with_script(call, done),
            false => self.call(call, done),
        }
        answer.await.unwrap_or_else(|_| Err(closed()))
    }
}

impl Call {
    /// The script's answer: a text or an array that begins with this call's nonce.
    fn answer(&self, result: Result<Reply, StoreError>) -> Result<Reply, StoreError> {
        let reply = result?;
        let echo = match &reply {
            Reply::Error(error) if self.is_redirectable && redirect::is_one(error) => {
                return Ok(reply);
            }
            Reply::Error(error) => return Err(of_server(error)),
            Reply::Array(replies) => replies.first().and_then(Reply::text),
            text => text.text(),
        };
        if echo.and_then(|echo| echo.split([' ', '\n']).next()) == Some(&self.nonce) {
            return Ok(reply);
        }
        Err(StoreError::unknown("the server sent the answer to another request"))
    }
}
