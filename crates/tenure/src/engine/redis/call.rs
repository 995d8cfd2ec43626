//! Calls of scripts, by the name that the server gives them, or with their text where it has
//! forgotten them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;

use super::batch::Common;
use super::errors::{is_forbidden, is_missing_script, of_server};
use super::keys;
use super::link::{Link, closed};
use super::resp::{Command, Reply};
use super::scripts::Script;
use super::wire::Done;
use crate::core::name::LockName;
use crate::error::StoreError;
use crate::sync::lock;

/// How often a script is loaded for one call, where it cannot be sent along: each time, the server may
/// be made to forget it before it is called.
const LOADS: u32 = 8;

/// A call of a script.
pub(super) struct Call {
    script: &'static Script,
    number: u64,
    nonce: String,
    pub(super) command: Command,
}

/// Called with a script's answer.
pub(super) type Landed = Done;

/// What came of a call that was sent once.
pub(super) enum Landing {
    /// The server does not know the script. So it has not run.
    Missing,
    Done(Result<Reply, StoreError>),
}

/// Called with what came of a call that was sent once.
pub(super) type LandedOnce = Box<dyn FnOnce(Arc<Call>, Landing) + Send>;

impl Link {
    /// What all calls of a client are told.
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
        let number = self.nonce.fetch_add(1, Ordering::Relaxed);
        let nonce = number.to_string();
        let mut command = Command::new("EVALSHA").arg(&script.hash).arg(names.len().to_string());
        names.for_each(|name| command.push(keys::lock(name)));
        command.push(format!("{nonce} {client} {}", self.retention));
        Call { script, number, nonce, command }
    }

    /// Runs a script, telling the server its text where it does not know it, and checks that the
    /// answer is the one to this very call.
    pub(super) fn call(self: &Arc<Self>, call: Call, landed: Landed) {
        let link = self.clone();
        self.call_once(
            call,
            Box::new(move |call, landing| match landing {
                Landing::Missing if link.was_told_since(&call) => link.call_again(call, landed),
                Landing::Missing => link.call_with_text(call, landed),
                Landing::Done(result) => landed(result),
            }),
        );
    }

    /// Runs a script that the server is expected to know.
    pub(super) fn call_once(self: &Arc<Self>, call: Call, landed: LandedOnce) {
        let call = Arc::new(call);
        let sent = call.clone();
        let done = Box::new(move |result: Result<Reply, StoreError>| match result {
            Ok(reply) if is_missing_script(&reply) => landed(call, Landing::Missing),
            result => {
                let answer = call.answer(result);
                landed(call, Landing::Done(answer));
            }
        });
        self.send(&sent.command, done);
    }

    /// Runs a script with its text.
    pub(super) fn call_telling(self: &Arc<Self>, call: Call, landed: Landed) {
        self.clone().call_with_text(Arc::new(call), landed);
    }

    /// Whether the server was sent the script's text since this call. Of many calls that were under way when
    /// it forgot its scripts, one takes the text along.
    pub(super) fn was_told_since(&self, call: &Call) -> bool {
        lock(&self.told).get(&*call.script.hash).is_some_and(|told| *told > call.number)
    }

    fn call_again(self: Arc<Self>, call: Arc<Call>, landed: Landed) {
        let (link, sent) = (self.clone(), call.clone());
        let done = Box::new(move |result: Result<Reply, StoreError>| match result {
            Ok(reply) if is_missing_script(&reply) => link.call_with_text(call, landed),
            result => landed(call.answer(result)),
        });
        self.send(&sent.command, done);
    }

    /// Sends it with its text: told it beforehand, the server could be made to forget it again in between.
    fn call_with_text(self: Arc<Self>, call: Arc<Call>, landed: Landed) {
        lock(&self.told).insert(&call.script.hash, self.nonce.load(Ordering::Relaxed));
        let command =
            call.command.with_head(["EVALSHA", &call.script.hash], ["EVAL", &call.script.text]);
        let link = self.clone();
        let done = Box::new(move |result: Result<Reply, StoreError>| match result {
            Ok(reply) if is_forbidden(&reply) => link.load_and_call(call, landed, LOADS),
            result => landed(call.answer(result)),
        });
        self.send(&command, done);
    }

    /// A user who may not send scripts may load them.
    fn load_and_call(self: Arc<Self>, call: Arc<Call>, landed: Landed, loads: u32) {
        let load = Command::new("SCRIPT").arg("LOAD").arg(&call.script.text);
        self.send(&load, Box::new(|_| ()));
        let (link, sent) = (self.clone(), call.clone());
        let done = Box::new(move |result: Result<Reply, StoreError>| match result {
            Ok(reply) if is_missing_script(&reply) && loads > 1 => {
                link.load_and_call(call, landed, loads - 1);
            }
            result => landed(call.answer(result)),
        });
        self.send(&sent.command, done);
    }

    /// Runs a script, and awaits its answer.
    pub(super) async fn run(self: &Arc<Self>, call: Call) -> Result<Reply, StoreError> {
        let (done, answer) = oneshot::channel();
        self.call(call, Box::new(|result| drop(done.send(result))));
        answer.await.unwrap_or_else(|_| Err(closed()))
    }
}

impl Call {
    /// What the script answered: a text or an array that begins with the nonce, and what was behind it.
    fn answer(&self, result: Result<Reply, StoreError>) -> Result<Reply, StoreError> {
        let reply = result?;
        let echo = match &reply {
            Reply::Error(error) => return Err(of_server(error)),
            Reply::Array(replies) => replies.first().and_then(Reply::text),
            text => text.text(),
        };
        if echo.and_then(|echo| echo.split([' ', '\n']).next()) == Some(&self.nonce) {
            return Ok(reply);
        }
        Err(StoreError::unknown("the server gave the answer to another request"))
    }
}
