use requeue::Queue;
use std::thread;
use std::time::Duration;

#[test]
fn blocking_and_async_getters_share_one_queue() {
    let queue = Queue::<u64>::new();
    let workers: Vec<_> = (0..4)
        .map(|i| {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut n = 0u64;
                if i % 2 == 0 {
                    while let Some(lease) = queue.get_blocking() {
                        n += 1;
                        lease.done();
                    }
                } else {
                    futures_executor::block_on(async {
                        while let Some(lease) = queue.get().await {
                            n += 1;
                            lease.done();
                        }
                    });
                }
                n
            })
        })
        .collect();
    for key in 0..100_000u64 {
        if key % 3 == 0 {
            queue.add_after(key, Duration::from_micros(key % 5000));
        } else {
            queue.add(key);
        }
    }
    queue.wait_idle_blocking();
    queue.close();
    let total: u64 = workers.into_iter().map(|w| w.join().unwrap()).sum();
    assert_eq!(total, 100_000);
}
