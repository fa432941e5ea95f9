package main

import (
	"runtime"
	"time"
)

func memoryBenches() []bench {
	return []bench{
		{"memory.ready.u64", clientGo, func() sample {
			queue := plain[uint64]()
			return heap(numbers(million), queue.Add)
		}},
		{"memory.ready.str", clientGo, func() sample {
			queue := plain[string]()
			return heap(names(million), queue.Add)
		}},
		{"memory.ready.u64", controllerRuntime, func() sample {
			queue := prioritised[uint64]()
			return heap(numbers(million), queue.Add)
		}},
		{"memory.delayed.u64", clientGo, func() sample {
			queue := delaying[uint64]()
			return heap(numbers(million), func(key uint64) { queue.AddAfter(key, time.Hour) })
		}},
		{"memory.delayed.str", clientGo, func() sample {
			queue := delaying[string]()
			return heap(names(million), func(key string) { queue.AddAfter(key, time.Hour) })
		}},
		{"memory.retry.u64", clientGo, func() sample {
			policy := exponential[uint64]()
			return heap(numbers(million), func(key uint64) { policy.When(key) })
		}},
	}
}

// heap measures the live heap per key, without the bytes of its string.
func heap[K any](keys []K, add func(K)) sample {
	before := live()
	for _, key := range keys {
		add(key)
	}
	// A delaying queue accepts its keys on another goroutine.
	time.Sleep(100 * time.Millisecond)
	after := live()
	runtime.KeepAlive(keys)
	runtime.KeepAlive(add)
	return sample{Bytes: float64(after-before) / float64(len(keys))}
}

func live() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
