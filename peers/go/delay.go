package main

import (
	"time"

	"k8s.io/client-go/util/workqueue"
)

func delaying[K comparable]() workqueue.TypedDelayingInterface[K] {
	return workqueue.NewTypedDelayingQueue[K]()
}

func delayBenches() []bench {
	many := func() (int, time.Duration) { return 100_000, 2 * time.Second }
	few := func() (int, time.Duration) { return 1000, time.Duration(ops(1000, 300)) * time.Millisecond }
	return []bench{
		{"delay.insert.u64", clientGo, func() sample { return insert(delaying[uint64](), numbers(million)) }},
		{"delay.insert.str", clientGo, func() sample { return insert(delaying[string](), names(million)) }},
		{"delay.insert.u64", controllerRuntime, func() sample { return insert(prioritised[uint64](), numbers(ops(million, 100_000))) }},
		{"lateness.1k", clientGo, func() sample { return lateness(delaying[uint64](), few) }},
		{"lateness.1k", controllerRuntime, func() sample { return lateness(prioritised[uint64](), few) }},
		{"lateness.100k", clientGo, func() sample { return lateness(delaying[uint64](), many) }},
	}
}

// insert adds keys with delays of 10 to 20 s, longer than the insertion of all keys.
func insert[K comparable](queue workqueue.TypedDelayingInterface[K], keys []K) sample {
	delays := randomDelays(len(keys), 10*time.Second, 10*time.Second)
	return timed(len(keys), func() {
		for i, key := range keys {
			queue.AddAfter(key, delays[i])
		}
		queue.Len()
	})
}

// lateness measures the time from the deadline of a delayed key to its delivery.
func lateness(queue workqueue.TypedDelayingInterface[uint64], load func() (int, time.Duration)) sample {
	count, width := load()
	delays := randomDelays(count, 200*time.Millisecond, width)
	due, late := make([]time.Time, count), make([]time.Duration, count)
	for i, delay := range delays {
		due[i] = time.Now().Add(delay)
		queue.AddAfter(uint64(i), delay)
	}
	for range count {
		key, _ := queue.Get()
		late[key] = time.Since(due[key])
		queue.Done(key)
	}
	return median(late)
}
