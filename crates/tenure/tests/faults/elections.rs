//! Leaders that lose their connection.

use tenure::{Tenure, WhyLost};
use tokio::time::Instant;

use super::fixture::LONG;
use crate::common::{Fault, Faults, Kind, ms, pair};

/// I9, R27: no renewal is confirmed, so the leader steps down at its renew deadline, while the store
/// still excludes all others.
#[tokio::test]
async fn a_leader_that_is_cut_off_steps_down_in_time() {
    for fault in [Fault::RequestLost, Fault::Refused, Fault::ReplyLost] {
        let (faulty, faults, healthy) = pair();
        steps_down(&faulty, &faults, &healthy, fault).await;
    }
}

async fn steps_down(faulty: &Tenure, faults: &Faults, healthy: &Tenure, fault: Fault) {
    let (lease, renew_deadline) = (ms(1_500), ms(1_000));
    // A hundredth of the lease, and two milliseconds (A1).
    let drift = ms(17);
    faults.always(Kind::Renew, fault);
    let election = |tenure: &Tenure| {
        tenure.election("x").lease(lease).renew_deadline(renew_deadline).retry(ms(5))
    };
    let asked = Instant::now();
    let leading = election(faulty).campaign().await.unwrap();
    assert!(leading.is_leader());
    let lost = leading.deposed().await;
    assert!(asked.elapsed() >= renew_deadline - drift, "{fault:?}: {:?}", asked.elapsed());
    assert_eq!(lost.why(), WhyLost::SteppedDown, "{fault:?}");
    assert!(!leading.is_leader());
    assert_eq!(leading.ensure_leader().unwrap_err().why(), WhyLost::SteppedDown);
    assert!(leading.protect(async {}).await.is_err(), "nothing is begun any more");

    let other = election(healthy);
    let still =
        other.leader().await.unwrap().expect("notified before the lease ended in the store");
    assert_eq!(still.owner, leading.owner());
    assert!(other.try_campaign().await.unwrap().is_none(), "there is no leader in between");
    let left = healthy.lock("x").inspect().await.unwrap().holders[0].lease_left;
    assert!(left > ms(100), "{fault:?}: work has {left:?} to end");
    if fault != Fault::ReplyLost {
        let next = other.campaign_within(LONG).await.unwrap();
        assert!(next.fence() > leading.fence(), "I4");
    }
}

/// I9, R27: a renewal that is confirmed in time keeps the leader, also after some were lost.
#[tokio::test]
async fn a_leader_survives_renewals_that_fail_for_a_while() {
    let (faulty, faults, _calm) = pair();
    let election = faulty.election("x").lease(ms(900)).renew_deadline(ms(700));
    let leading = election.campaign().await.unwrap();
    for fault in [Fault::RequestLost, Fault::Refused] {
        faults.once(Kind::Renew, fault);
    }
    let deposed = tokio::time::timeout(ms(1_800), leading.deposed()).await;
    assert!(deposed.is_err(), "{deposed:?}");
    leading.ensure_leader().unwrap();
}
