//! Gathering operations, the order in which they are sent, and their answers when the link is down.

use super::gathered::Waiting;
use super::lane::LaneKey;
use super::*;
use crate::blocking::block_on;
use crate::core::fence::RETENTION;
use crate::core::lease::Lease;
use crate::core::shape::Shape;
use crate::engine::redis::address::Address;
use crate::engine::redis::node::{Node, Setup};
use crate::engine::redis::pace::Pace;
use crate::engine::redis::protocol::Protocol;
use crate::engine::redis::resp::Reply;
use crate::engine::redis::topics::Scope;
use crate::engine::{AcquireRequest, CancelRequest, ReleaseOutcome, ReleaseRequest};
use crate::error::StoreError;
use crate::info::About;
use crate::owner::Entry;

/// A batcher on a link that is down, and so answers at once.
fn batcher() -> Arc<Batcher> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let setup = Setup {
        client: "client".into(),
        retention: RETENTION,
        marker: None,
        protocol: Protocol::Tenure,
        runtime: None,
        io: runtime.handle().clone(),
        wakeups: Arc::default(),
    };
    let address = Address::parse("redis://127.0.0.1:1").unwrap();
    let node = Node::start(&address, &setup, Pace::default(), Scope::All);
    node.commands.down(StoreError::refused("not connected"));
    Batcher::new(Routes::One(node), setup.client)
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
        proposal: None,
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
    while let Some(Dispatch { batch, .. }) = gathered.take(&|_| 1) {
        // As if it were answered.
        gathered.lane(LaneKey::of(&*batch[0])).in_flight -= 1;
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
    gathered.lane(LaneKey::new(ReleaseRequest::script(), 0)).in_flight = 1;
    assert!(gathered.take(&|_| 1).is_none());
    gathered.lane(LaneKey::new(ReleaseRequest::script(), 0)).in_flight = 0;
    assert_eq!(gathered.take(&|_| 1).unwrap().batch.len(), 1);
    assert_eq!(gathered.take(&|_| 1).unwrap().batch.len(), 1, "on the socket, the order is kept");
}

/// Rule 13: with several calls of a kind in flight, the operations of a name are sent in order.
#[test]
fn several_calls_of_a_kind_are_sent_in_order() {
    let batcher = batcher();
    let mut gathered = lock(&batcher.gathered);
    let mut calls: Vec<Vec<_>> = Vec::new();
    for (operation, _) in [release("x"), release("x"), release("y")].map(|it| awaited(it, 0)) {
        gathered.add(operation);
        calls.push(
            gathered.take(&|_| 3).unwrap().batch.iter().map(|it| it.name().to_string()).collect(),
        );
    }
    assert_eq!(calls, [["x"], ["x"], ["y"]].map(|names| names.map(str::to_owned).to_vec()));
    gathered.add(awaited(release("z"), 0).0);
    gathered.add(awaited(cancel("z"), 0).0);
    assert!(gathered.take(&|_| 3).is_none(), "the limit of calls in flight is reached");
    assert!(!gathered.can_send(&|_| 3));
    gathered.lane(LaneKey::new(ReleaseRequest::script(), 0)).in_flight -= 1;
    assert!(gathered.can_send(&|_| 3));
    assert_eq!(gathered.take(&|_| 3).unwrap().batch.len(), 1);
    assert_eq!(gathered.take(&|_| 3).unwrap().batch.len(), 1, "on the socket, the order is kept");
}

/// A full batch is sent though a call of its kind is in flight, up to a few of them.
#[test]
fn a_full_batch_need_not_wait_for_the_call_before_it() {
    let batcher = batcher();
    let mut gathered = lock(&batcher.gathered);
    let add = |gathered: &mut Gathered, count: usize| {
        let names = (0..count).map(|number| format!("orders/{number}"));
        names.for_each(|name| gathered.add(awaited(release(&name), 0).0));
        gathered.take(&|_| 1).map(|dispatch| dispatch.batch.len())
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

fn flight(batcher: &Arc<Batcher>, Dispatch { id, lane, batch, slots, .. }: Dispatch) -> Flight {
    let (script, slot) = (batch[0].script(), batch[0].slot());
    let is_spread = batch.iter().any(|item| item.slot() != slot);
    let batcher = batcher.clone();
    Flight { batcher, id, lane, slots, script, slot, is_spread, link: None, batch }
}

/// A call for locks of as many slots of node 7, which is answered with these lines. Returns the calls that follow.
fn answer_of(batcher: &Arc<Batcher>, names: &[&str], lines: &str) -> Vec<Vec<String>> {
    let mut gathered = lock(&batcher.gathered);
    gathered.is_sending = true;
    for (name, slot) in names.iter().zip(1..) {
        let mut item = awaited(release(name), slot).0;
        item.set_node(gathered.spreading.takes(&*item, 7).then_some(7));
        gathered.add(item);
    }
    let taken = gathered.take(&|_| 1).unwrap();
    drop(gathered);
    assert_eq!(taken.batch.len(), names.len());
    flight(batcher, taken).complete(Ok(Reply::Text(lines.as_bytes().to_vec())));
    let mut gathered = lock(&batcher.gathered);
    let mut calls = Vec::new();
    while let Some(dispatch) = gathered.take(&|_| 1) {
        gathered.land(dispatch.lane, dispatch.slots);
        calls.push(dispatch.batch.iter().map(|item| item.name().to_string()).collect());
    }
    // The order of different names does not matter.
    calls.sort();
    calls
}

/// Rule 13: what a call for several slots has not done is sent again to its slot, at once; such a lock is not tried that way
/// again soon.
#[test]
fn what_a_spread_call_has_left_is_sent_alone() {
    let batcher = batcher();
    let calls = answer_of(&batcher, &["x", "y", "z"], "nonce\n0\n-ALONE\n-ELSEWHERE");
    assert_eq!(calls, [["y"], ["z"]]);
    let is_taken = |name: &str| {
        let item = awaited(release(name), 1).0;
        lock(&batcher.gathered).spreading.takes(&*item, 7)
    };
    assert!(is_taken("x") && !is_taken("y") && !is_taken("z"));
}

/// A server that refuses keys which are not declared is not asked that way for some time. One slot that cannot be read may be
/// in transit: then other slots of that node, and other nodes, are asked as before.
#[test]
fn calls_are_not_spread_where_the_server_refuses_that() {
    let batcher = batcher();
    let is_taken = |node| {
        let item = awaited(release("other"), 1).0;
        lock(&batcher.gathered).spreading.takes(&*item, node)
    };
    answer_of(&batcher, &["x", "y"], "nonce\n0\n-ELSEWHERE");
    assert!(is_taken(7));
    let calls = answer_of(
        &batcher,
        &["a", "b", "c", "d"],
        &format!("nonce\n0{}", "\n-ELSEWHERE".repeat(3)),
    );
    assert_eq!(calls, [["b"], ["c"], ["d"]]);
    assert!(!is_taken(7) && is_taken(8));
}

/// A call that is dropped without an answer is unknown, and the next can be sent.
#[test]
fn a_call_without_an_answer_is_unknown() {
    let batcher = batcher();
    lock(&batcher.gathered).is_sending = true;
    let answer: Answer<ReleaseOutcome> = batcher.send(release("x"));
    let mut gathered = lock(&batcher.gathered);
    let batch = gathered.take(&|_| 1).unwrap();
    drop(gathered);
    drop(flight(&batcher, batch));
    assert!(block_on(answer).unwrap_err().is_unknown());
    assert_eq!(
        lock(&batcher.gathered).lane(LaneKey::new(ReleaseRequest::script(), 0)).in_flight,
        0
    );
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
        gathered.add(awaited(request, 0).0);
        let dispatch = gathered.take(&|_| 3).unwrap();
        gathered.lane(LaneKey::new(AcquireRequest::script(), 0)).in_flight -= 1;
        taken.extend(dispatch.batch);
    }
    gathered.add(awaited(third, 0).0);
    taken
        .into_iter()
        .for_each(|item| gathered.put_back(Waiting { item, is_alone: false, asks: None }));
    let sent: Vec<_> =
        gathered.take(&|_| 3).unwrap().batch.iter().map(|item| item.owner()).collect();
    assert_eq!(sent, owners);
}

/// A batcher of a cluster whose slots have these nodes.
fn of_cluster(owners: &Arc<Mutex<[u64; 4]>>) -> Arc<Batcher> {
    let (batcher, owners) = (batcher(), owners.clone());
    let owner = move |slot: u16| Some(lock(&owners)[usize::from(slot)]);
    let mut gathered = lock(&batcher.gathered);
    gathered.slots = Slots::of_cluster(Box::new(owner));
    gathered.is_sending = true;
    drop(gathered);
    batcher
}

/// The operations of the next call, and the node that it is sent to; the call itself is in flight then.
fn next(batcher: &Arc<Batcher>) -> Option<(Flight, u64)> {
    let dispatch = lock(&batcher.gathered).take(&|_| 3)?;
    let to = dispatch.to.unwrap();
    Some((flight(batcher, dispatch), to))
}

/// Rule 13: a slot had moved. A release was redirected, and so the map had changed before the release was put back; another
/// thread sent the next acquire of that lock to the new node, where it came first, and found the lock taken.
#[test]
fn an_operation_waits_while_an_earlier_one_is_in_flight_to_another_node() {
    let owners = Arc::new(Mutex::new([1; 4]));
    let batcher = of_cluster(&owners);
    lock(&batcher.gathered).add(awaited(release("x"), 2).0);
    let (released, to) = next(&batcher).unwrap();
    assert_eq!(to, 1);
    lock(&owners)[2] = 9;
    let mut gathered = lock(&batcher.gathered);
    gathered.add(awaited(acquire("x"), 2).0);
    gathered.add(awaited(acquire("y"), 3).0);
    drop(gathered);
    let (other, to) = next(&batcher).unwrap();
    assert_eq!((other.slot, to), (3, 1), "another slot does not wait");
    assert!(next(&batcher).is_none(), "the acquire waits");
    released.put_back(false, None);
    let (released, to) = next(&batcher).unwrap();
    assert_eq!((released.script.hash.as_str(), to), (ReleaseRequest::script().hash.as_str(), 9));
    let (acquired, to) = next(&batcher).unwrap();
    assert!(acquired.batch[0].is_acquire() && to == 9, "behind the release, on the same socket");
}

/// Rule 13: a release was left undone by a spread call. The acquire behind it was in flight already, and found the lock taken.
#[test]
fn an_operation_waits_while_an_earlier_one_may_be_left_undone() {
    let batcher = of_cluster(&Arc::new(Mutex::new([7; 4])));
    let mut gathered = lock(&batcher.gathered);
    for (name, slot) in [("x", 1), ("y", 2)] {
        let mut item = awaited(release(name), slot).0;
        item.set_node(Some(7));
        gathered.add(item);
    }
    let mut item = awaited(acquire("x"), 1).0;
    item.set_node(Some(7));
    gathered.add(item);
    drop(gathered);
    let (released, _) = next(&batcher).unwrap();
    assert_eq!(released.batch.len(), 2);
    assert!(next(&batcher).is_none(), "the acquire waits");
    released.complete(Ok(Reply::Text(b"nonce\n-ALONE\n0".to_vec())));
    let (released, _) = next(&batcher).unwrap();
    assert_eq!(released.batch[0].name(), &name("x"));
    let (acquired, _) = next(&batcher).unwrap();
    assert!(acquired.batch[0].is_acquire(), "behind the release, on the same socket");
}
