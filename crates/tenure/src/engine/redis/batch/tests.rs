//! Gathering operations, the order in which they are sent, and their answers when the link is down.

use super::*;
use crate::blocking::block_on;
use crate::core::fence::RETENTION;
use crate::core::lease::Lease;
use crate::core::shape::Shape;
use crate::engine::redis::address::Address;
use crate::engine::{AcquireRequest, CancelRequest, ReleaseOutcome, ReleaseRequest};
use crate::info::About;
use crate::owner::Entry;

/// A batcher on a link that is down, and so answers at once.
fn batcher() -> Arc<Batcher> {
    let address = Address::parse("redis://127.0.0.1:1").unwrap();
    let link = Link::new(address, Arc::default(), RETENTION, "commands", None);
    Batcher::new(link, "client".to_owned())
}

fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

fn cancel(lock: &str) -> CancelRequest {
    CancelRequest { name: name(lock), entry: Entry::single() }
}

fn release(lock: &str) -> ReleaseRequest {
    ReleaseRequest::new(name(lock), Entry::single())
}

fn acquire(lock: &str) -> AcquireRequest {
    AcquireRequest {
        name: name(lock),
        entry: Entry::single(),
        shape: Shape::mutex(),
        lease: Lease::new(std::time::Duration::from_secs(30)).unwrap(),
        about: Arc::new(About::this_process()),
        queue: None,
    }
}

/// I6: very many operations wait for a call in flight when the connection is lost. Each is answered, on a
/// stack that has room for a few calls.
#[test]
fn a_dead_link_answers_all_waiting_operations_without_a_deep_stack() {
    const WAITING: usize = 256_000;
    let ended = std::thread::Builder::new().stack_size(256 * 1024).spawn(|| {
        let batcher = batcher();
        lock(&batcher.gathered).is_sending = true;
        let answers: Vec<_> =
            (0..WAITING).map(|it| batcher.send(cancel(&format!("x{}", it % 1000)))).collect();
        let mut gathered = lock(&batcher.gathered);
        gathered.is_sending = false;
        batcher.send_ready(gathered);
        let answered = answers.into_iter().map(block_on);
        assert_eq!(answered.filter(Result::is_err).count(), WAITING);
        assert!(lock(&batcher.gathered).waiting.is_empty());
    });
    ended.unwrap().join().unwrap();
}

/// Rule 13: the operations of one name are sent in order; other names do not wait for them.
#[test]
fn gathered_operations_are_sent_in_order() {
    let batcher = batcher();
    lock(&batcher.gathered).is_sending = true;
    let _ = (batcher.send(release("x")), batcher.send(cancel("x")), batcher.send(cancel("y")));
    let _ = (batcher.send(release("y")), batcher.send(release("x")), batcher.send(release("z")));
    let mut gathered = lock(&batcher.gathered);
    let mut calls = Vec::new();
    while let Some(Dispatch { batch, .. }) = gathered.take(1) {
        // As if it were answered.
        gathered.lane(batch[0].script()).in_flight -= 1;
        let is_release = std::ptr::eq(batch[0].script(), ReleaseRequest::script());
        let names: Vec<_> = batch.iter().map(|item| item.name().to_string()).collect();
        calls.push((is_release, names.join(" ")));
    }
    let calls: Vec<_> = calls.iter().map(|(kind, names)| (*kind, names.as_str())).collect();
    assert_eq!(calls, [(true, "x z"), (false, "y x"), (true, "y x")]);
}

/// An operation of a kind with a call in flight waits, and so do the later operations of its name.
#[test]
fn operations_behind_a_gathered_operation_wait_with_it() {
    let batcher = batcher();
    lock(&batcher.gathered).is_sending = true;
    let _ = (batcher.send(release("x")), batcher.send(cancel("x")));
    let mut gathered = lock(&batcher.gathered);
    gathered.lane(ReleaseRequest::script()).in_flight = 1;
    assert!(gathered.take(1).is_none());
    gathered.lane(ReleaseRequest::script()).in_flight = 0;
    assert_eq!(gathered.take(1).unwrap().batch.len(), 1);
    assert_eq!(gathered.take(1).unwrap().batch.len(), 1, "on the socket, the order is kept");
}

/// Rule 13: with several calls of a kind in flight, the operations of a name are sent in order.
#[test]
fn several_calls_of_a_kind_are_sent_in_order() {
    let batcher = batcher();
    let mut gathered = lock(&batcher.gathered);
    let mut calls: Vec<Vec<_>> = Vec::new();
    for (operation, _) in [release("x"), release("x"), release("y")].map(awaited) {
        gathered.add(operation);
        calls
            .push(gathered.take(3).unwrap().batch.iter().map(|it| it.name().to_string()).collect());
    }
    assert_eq!(calls, [["x"], ["x"], ["y"]].map(|names| names.map(str::to_owned).to_vec()));
    gathered.add(awaited(release("z")).0);
    gathered.add(awaited(cancel("z")).0);
    assert!(gathered.take(3).is_none(), "the limit of calls in flight is reached");
    assert!(!gathered.can_send(3));
    gathered.lane(ReleaseRequest::script()).in_flight -= 1;
    assert!(gathered.can_send(3));
    assert_eq!(gathered.take(3).unwrap().batch.len(), 1);
    assert_eq!(gathered.take(3).unwrap().batch.len(), 1, "on the socket, the order is kept");
}

/// A full batch is sent though a call of its kind is in flight, up to a few of them.
#[test]
fn a_full_batch_need_not_wait_for_the_call_before_it() {
    let batcher = batcher();
    let mut gathered = lock(&batcher.gathered);
    let add = |gathered: &mut Gathered, count: usize| {
        let names = (0..count).map(|number| format!("orders/{number}"));
        names.for_each(|name| gathered.add(awaited(release(&name)).0));
        gathered.take(1).map(|dispatch| dispatch.batch.len())
    };
    assert_eq!(add(&mut gathered, 1), Some(1));
    assert_eq!(add(&mut gathered, 15), None, "a call is in flight");
    assert_eq!(
        add(&mut gathered, 16),
        Some(31),
        "names that wait count once, all operations are sent"
    );
    assert_eq!(add(&mut gathered, 16), Some(16));
    assert_eq!(add(&mut gathered, 16), None, "the limit of calls in flight is reached");
}

/// A call that is dropped without an answer is unknown, and the next can be sent.
#[test]
fn a_call_without_an_answer_is_unknown() {
    let batcher = batcher();
    lock(&batcher.gathered).is_sending = true;
    let answer: Answer<ReleaseOutcome> = batcher.send(release("x"));
    let mut gathered = lock(&batcher.gathered);
    let batch = gathered.take(1).unwrap();
    drop(gathered);
    let Dispatch { id, batch, .. } = batch;
    drop(Flight { batcher: batcher.clone(), id, batch });
    assert!(block_on(answer).unwrap_err().is_unknown());
    assert_eq!(lock(&batcher.gathered).lane(ReleaseRequest::script()).in_flight, 0);
}

/// Rule 13: two calls of a kind were not performed, and are put back one after the other. The operations of a name are
/// sent again in the order in which they were added.
#[test]
fn operations_that_are_put_back_keep_their_order() {
    let batcher = batcher();
    let mut gathered = lock(&batcher.gathered);
    let (first, second, third) = (acquire("x"), acquire("x"), acquire("x"));
    let owners = [first.entry.owner, second.entry.owner, third.entry.owner];
    let mut taken = Vec::new();
    for request in [first, second] {
        gathered.add(awaited(request).0);
        let dispatch = gathered.take(3).unwrap();
        gathered.lane(AcquireRequest::script()).in_flight -= 1;
        taken.extend(dispatch.batch);
    }
    gathered.add(awaited(third).0);
    taken.into_iter().for_each(|item| gathered.put_back(Waiting { item, is_alone: false }));
    let sent: Vec<_> = gathered.take(3).unwrap().batch.iter().map(|item| item.owner()).collect();
    assert_eq!(sent, owners);
}
