use std::task::Waker;

use super::*;

fn wake() -> Wake {
    Wake::Task(Waker::noop().clone())
}

fn park(park: &mut Park, next: Option<Nanos>) -> (ParkedId, Option<Nanos>) {
    park.park(None, wake(), next)
}

/// Parks `count` getters; the first one leads if there is a deadline.
fn parked(count: usize, next: Option<Nanos>) -> (Park, Vec<ParkedId>) {
    let mut all = Park::default();
    let ids = (0..count).map(|_| park(&mut all, next).0).collect();
    (all, ids)
}

/// The getters that are still parked, longest waiting first.
fn remaining(park: &Park) -> Vec<ParkedId> {
    park.parked.keys().copied().collect()
}

#[test]
fn one_getter_is_called_for_each_ready_key() {
    let (mut park, ids) = parked(3, None);
    assert!(!park.is_empty());
    drop(park.settle(2, None));
    assert_eq!((remaining(&park), park.in_transit), (vec![ids[2]], 2));
    drop(park.settle(2, None));
    assert_eq!((park.len(), park.in_transit), (1, 2), "enough are in transit");
    drop(park.settle(9, None));
    assert_eq!((park.is_empty(), park.in_transit), (true, 3), "no more can be called");
}

#[test]
fn getter_woken_in_vain_parks_in_its_old_place() {
    let (mut park, ids) = parked(3, None);
    drop(park.settle(1, None));
    drop(park.arrive(ids[0]));
    assert_eq!(park.in_transit, 0);
    let (id, until) = park.park(Some(ids[0]), wake(), None);
    assert_eq!((id, until), (ids[0], None));
    assert_eq!(remaining(&park), ids);
}

#[test]
fn getter_that_arrives_uncalled_is_not_counted_as_in_transit() {
    let (mut park, ids) = parked(2, None);
    drop(park.arrive(ids[1]));
    assert_eq!((remaining(&park), park.in_transit), (vec![ids[0]], 0));
}

#[test]
fn first_getter_that_parks_with_a_deadline_leads() {
    let mut all = Park::default();
    assert_eq!(park(&mut all, None).1, None, "nothing is delayed");
    let (leader, until) = park(&mut all, Some(7));
    assert_eq!(until, Some(7));
    assert_eq!(park(&mut all, Some(7)).1, None, "another one leads");
    drop(all.settle(2, Some(7)));
    assert_eq!(remaining(&all), [leader], "the leader is called last");
    assert_eq!(all.leader, Leader::Parked { id: leader, until: 7 });
}

#[test]
fn leader_is_called_when_the_deadline_moves_forward() {
    let (mut park, ids) = parked(2, Some(7));
    drop(park.settle(0, Some(7)));
    drop(park.settle(0, Some(8)));
    assert_eq!(park.len(), 2, "it sleeps no longer than it may");
    drop(park.settle(0, Some(6)));
    assert_eq!((remaining(&park), park.in_transit), (vec![ids[1]], 1));
    drop(park.settle(0, Some(5)));
    assert_eq!(park.len(), 1, "it has not arrived yet: one call is enough");
    drop(park.arrive(ids[0]));
    assert_eq!(park.leader, Leader::None);
    assert_eq!(park.park(Some(ids[0]), wake(), Some(5)), (ids[0], Some(5)));
}

#[test]
fn getter_is_called_to_lead_when_a_first_delay_starts() {
    let (mut park, ids) = parked(2, None);
    drop(park.settle(0, Some(9)));
    assert_eq!(park.leader, Leader::InTransit { id: ids[0] });
    assert_eq!((remaining(&park), park.in_transit), (vec![ids[1]], 1));
}

#[test]
fn lead_passes_on_when_the_leader_leaves() {
    let (mut park, ids) = parked(3, Some(7));
    drop(park.arrive(ids[0]));
    drop(park.settle(0, Some(7)));
    assert_eq!(park.leader, Leader::InTransit { id: ids[1] });
    drop(park.arrive(ids[1]));
    drop(park.settle(0, Some(7)));
    assert_eq!(park.leader, Leader::InTransit { id: ids[2] });
}

#[test]
fn getter_that_parks_leads_while_another_is_in_transit_to_lead() {
    let (mut all, ids) = parked(1, Some(7));
    drop(all.settle(0, Some(3)));
    let (id, until) = park(&mut all, Some(3));
    assert_eq!(until, Some(3));
    drop(all.arrive(ids[0]));
    assert_eq!(all.leader, Leader::Parked { id, until: 3 });
}

#[test]
fn leader_that_is_called_for_a_key_stays_the_leader_until_it_arrives() {
    let (mut park, ids) = parked(1, Some(7));
    drop(park.settle(1, Some(7)));
    assert_eq!(park.leader, Leader::InTransit { id: ids[0] });
    drop(park.arrive(ids[0]));
    assert_eq!((park.leader, park.in_transit), (Leader::None, 0));
}

#[test]
fn closing_calls_every_getter() {
    let (mut park, _) = parked(4, Some(1));
    let mut wakes = Wakes::default();
    park.call_all(&mut wakes);
    assert_eq!((park.is_empty(), park.in_transit), (true, 4));
    drop(wakes);
}
