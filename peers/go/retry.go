package main

import (
	"time"

	"k8s.io/client-go/util/workqueue"
)

func exponential[K comparable]() workqueue.TypedRateLimiter[K] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[K](5*time.Millisecond, 1000*time.Second)
}

func retryBenches() []bench {
	return []bench{
		{"retry.first.u64", clientGo, func() sample { return when(exponential[uint64](), numbers(million), 1) }},
		{"retry.repeat.u64", clientGo, func() sample { return when(exponential[uint64](), numbers(million), 2) }},
		{"retry.forget.u64", clientGo, func() sample { return forget(exponential[uint64](), numbers(million)) }},
		{"retry.first.str", clientGo, func() sample { return when(exponential[string](), names(million), 1) }},
		{"retry.repeat.str", clientGo, func() sample { return when(exponential[string](), names(million), 2) }},
		{"retry.limited.u64", clientGo, limited},
	}
}

// when measures failure number failure of every key.
func when[K comparable](policy workqueue.TypedRateLimiter[K], keys []K, failure int) (result sample) {
	for range failure {
		result = timed(len(keys), func() {
			for _, key := range keys {
				policy.When(key)
			}
		})
	}
	return result
}

func forget[K comparable](policy workqueue.TypedRateLimiter[K], keys []K) sample {
	when(policy, keys, 1)
	return timed(len(keys), func() {
		for _, key := range keys {
			policy.Forget(key)
		}
	})
}

// limited measures a rate-limited add followed by a forget, with the default policy.
func limited() sample {
	keys := numbers(ops(million, 200_000))
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[uint64]())
	return timed(len(keys), func() {
		for _, key := range keys {
			queue.AddRateLimited(key)
			queue.Forget(key)
		}
	})
}
