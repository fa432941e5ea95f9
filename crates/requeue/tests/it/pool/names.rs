//! Names of pools and of their threads.

use std::sync::mpsc;
use std::thread;

use requeue::Queue;
use requeue::pool::Pool;

use super::LONG;

/// Returns the name of a thread of the pool `name`.
fn thread_of(name: &str) -> Option<String> {
    let (send, names) = mpsc::channel();
    let queue = Queue::new();
    queue.add(1).unwrap();
    let pool = Pool::new(queue).name(name).spawn_threads(move |_| {
        send.send(thread::current().name().map(str::to_owned)).unwrap();
    });
    let name = names.recv().expect("the key runs");
    pool.expect("a thread").drain_blocking(LONG);
    name
}

/// A null byte in the name of a thread is a panic.
#[test]
fn threads_are_named_after_their_pool() {
    assert_eq!(thread_of("mail").as_deref(), Some("mail-1"));
    assert_eq!(thread_of("").as_deref(), Some("requeue-1"));
    assert_eq!(thread_of("m\0ail").as_deref(), Some("mail-1"));
}

#[test]
fn pool_shows_its_settings() {
    let queue = Queue::<u32>::builder().name("mail").build();
    let pool = Pool::new(queue).workers(3).max_retries(5).timeout(LONG);
    assert_eq!(
        format!("{pool:?}"),
        "Pool { name: \"mail\", workers: 3, timeout: Some(60s), max_retries: Some(5), .. }"
    );
}
