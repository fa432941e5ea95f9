//! A key is queued once, and one worker at a time processes it.

use requeue::{Added, Counts, Queue};

use crate::helpers::take_all;

#[test]
fn key_added_often_is_delivered_once() {
    let queue = Queue::new();
    assert_eq!(queue.add("a"), Ok(Added::Ready));
    for _ in 0..10 {
        assert_eq!(queue.add("a"), Ok(Added::Duplicate));
    }
    assert_eq!(take_all(&queue), ["a"]);
}

#[test]
fn key_added_often_while_processing_is_delivered_once_more() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    assert_eq!(queue.add("a"), Ok(Added::Dirty));
    assert_eq!(queue.add("a"), Ok(Added::Duplicate));
    lease.done();
    assert_eq!(take_all(&queue), ["a"]);
}

#[test]
fn processing_key_is_not_delivered_again() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    queue.add("a").unwrap();
    assert!(queue.try_get().is_err());
    assert_eq!(queue.counts(), Counts { ready: 0, delayed: 0, processing: 1, dirty: 1 });
    lease.done();
    assert_eq!(queue.counts(), Counts { ready: 1, ..Counts::default() });
}

#[test]
fn finished_key_can_be_added_again() {
    let queue = Queue::new();
    for _ in 0..3 {
        assert_eq!(queue.add("a"), Ok(Added::Ready));
        assert_eq!(take_all(&queue), ["a"]);
    }
    assert_eq!(queue.counts(), Counts::default());
}

#[test]
fn borrowed_and_owned_keys_are_the_same_key() {
    let queue = Queue::<String>::new();
    assert_eq!(queue.add_ref("a"), Ok(Added::Ready));
    assert_eq!(queue.add("a".to_owned()), Ok(Added::Duplicate));
    assert!(queue.contains("a"));
    let lease = queue.try_get().unwrap();
    assert_eq!(queue.add_ref("a"), Ok(Added::Dirty));
    assert!(queue.remove("a"));
    lease.done();
    assert!(!queue.contains("a"));
}

#[test]
fn borrowed_duplicate_is_not_cloned() {
    #[derive(PartialEq, Eq, Hash)]
    struct Costly(u32);
    impl Clone for Costly {
        fn clone(&self) -> Self {
            panic!("key {} was cloned", self.0)
        }
    }
    let queue = Queue::new();
    queue.add(Costly(1)).unwrap();
    assert_eq!(queue.add_ref(&Costly(1)), Ok(Added::Duplicate));
}

#[test]
fn add_all_counts_keys_by_result() {
    let queue = Queue::new();
    queue.add(0).unwrap();
    let lease = queue.try_get().unwrap();
    let added = queue.add_all([0, 1, 1, 0, 2]).unwrap();
    assert_eq!((added.ready, added.dirty, added.duplicate), (2, 1, 2));
    lease.done();
}

#[test]
fn removed_key_is_not_delivered() {
    let queue = Queue::new();
    queue.add_all(["a", "b", "c"]).unwrap();
    assert!(queue.remove("b"));
    assert!(!queue.remove("b"));
    assert!(!queue.contains("b"));
    assert_eq!(take_all(&queue), ["a", "c"]);
}

#[test]
fn removing_a_processing_key_cancels_only_a_later_add() {
    let queue = Queue::new();
    queue.add("a").unwrap();
    let lease = queue.try_get().unwrap();
    assert!(!queue.remove("a"));
    queue.add("a").unwrap();
    assert!(queue.remove("a"));
    assert!(queue.contains("a"), "it is still processing");
    lease.done();
    assert_eq!(queue.counts(), Counts::default());
}

#[test]
fn queue_with_a_custom_hasher_finds_its_keys() {
    let queue = Queue::<String>::builder().hasher(std::hash::RandomState::new()).build();
    for key in 0..1000 {
        queue.add(key.to_string()).unwrap();
    }
    assert_eq!(queue.add_ref("500"), Ok(Added::Duplicate));
    assert_eq!(queue.len(), 1000);
}

#[test]
fn keys_with_equal_hashes_are_different_keys() {
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Same(u32);
    impl std::hash::Hash for Same {
        fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
    }
    let queue = Queue::new();
    assert_eq!(queue.add_all((0..100).map(Same)).unwrap().ready, 100);
    assert_eq!(queue.add(Same(50)), Ok(Added::Duplicate));
    assert!(queue.remove(&Same(50)));
    let expected: Vec<_> = (0..100).filter(|key| *key != 50).map(Same).collect();
    assert_eq!(take_all(&queue), expected);
}
