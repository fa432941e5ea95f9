package main

import (
	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

const (
	clientGo          = "go-client-go"
	controllerRuntime = "go-controller-runtime"
)

func plain[K comparable]() workqueue.TypedInterface[K] { return workqueue.NewTyped[K]() }

func prioritised[K comparable]() workqueue.TypedRateLimitingInterface[K] {
	return priorityqueue.New("", func(o *priorityqueue.Opts[K]) {
		o.Log = logr.Discard()
		o.MetricProvider = noMetrics{}
	})
}

// noMetrics is never called, because the queue has no name.
type noMetrics struct{ workqueue.MetricsProvider }

func queueBenches() []bench {
	slow := func() workqueue.TypedInterface[uint64] { return prioritised[uint64]() }
	slowNames := func() workqueue.TypedInterface[string] { return prioritised[string]() }
	few, fewFast := 200_000, 20_000
	many, manyFast := 3*million, million
	return []bench{
		{"cycle.u64.1k", clientGo, func() sample { return cycle(plain[uint64](), numbers(1000), ops(many, manyFast)) }},
		{"cycle.u64.1M", clientGo, func() sample { return cycle(plain[uint64](), numbers(million), ops(many, manyFast)) }},
		{"cycle.str.1k", clientGo, func() sample { return cycle(plain[string](), names(1000), ops(many, manyFast)) }},
		{"cycle.str.1M", clientGo, func() sample { return cycle(plain[string](), names(million), ops(many, manyFast)) }},
		{"cycle.u64.1k", controllerRuntime, func() sample { return cycle(slow(), numbers(1000), ops(few, fewFast)) }},
		{"cycle.str.1k", controllerRuntime, func() sample { return cycle(slowNames(), names(1000), ops(few, fewFast)) }},
		{"fill.u64.1k", clientGo, func() sample { return fill(plain[uint64](), numbers(1000), ops(1000, 400)) }},
		{"fill.u64.1M", clientGo, func() sample { return fill(plain[uint64](), numbers(million), 1) }},
		{"fill.str.1k", clientGo, func() sample { return fill(plain[string](), names(1000), ops(1000, 400)) }},
		{"fill.str.1M", clientGo, func() sample { return fill(plain[string](), names(million), 1) }},
		{"fill.u64.1k", controllerRuntime, func() sample { return fill(slow(), numbers(1000), ops(100, 20)) }},
		{"churn.u64", clientGo, func() sample { return churn(plain[uint64](), 0, ops(million, 400_000)) }},
		{"churn.u64.late", clientGo, func() sample { return churn(plain[uint64](), 2*million, ops(million, 400_000)) }},
		{"dup.u64", clientGo, func() sample { return duplicates(plain[uint64](), numbers(1000), ops(20_000, 4000)) }},
		{"dup.str", clientGo, func() sample { return duplicates(plain[string](), names(1000), ops(20_000, 4000)) }},
		{"dup.u64", controllerRuntime, func() sample { return duplicates(slow(), numbers(1000), ops(500, 50)) }},
	}
}

func cycle[K comparable](queue workqueue.TypedInterface[K], keys []K, count int) sample {
	return timed(count, func() {
		for i := range count {
			queue.Add(keys[i%len(keys)])
			key, _ := queue.Get()
			queue.Done(key)
		}
	})
}

func fill[K comparable](queue workqueue.TypedInterface[K], keys []K, times int) sample {
	return timed(times*len(keys), func() {
		for range times {
			for _, key := range keys {
				queue.Add(key)
			}
			for range keys {
				key, _ := queue.Get()
				queue.Done(key)
			}
		}
	})
}

// churn replaces the oldest of 200,000 queued keys by a new one, over and over. The first
// skipped replacements are not measured.
func churn(queue workqueue.TypedInterface[uint64], skipped, count int) sample {
	next := uint64(0)
	add := func() {
		queue.Add(next)
		next++
	}
	for range 200_000 {
		add()
	}
	replace := func() {
		add()
		key, _ := queue.Get()
		queue.Done(key)
	}
	for range skipped {
		replace()
	}
	return timed(count, func() {
		for range count {
			replace()
		}
	})
}

func duplicates[K comparable](queue workqueue.TypedInterface[K], keys []K, times int) sample {
	for _, key := range keys {
		queue.Add(key)
	}
	return timed(times*len(keys), func() {
		for range times {
			for _, key := range keys {
				queue.Add(key)
			}
		}
	})
}
