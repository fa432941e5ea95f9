package main

import (
	"sync"
	"time"

	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"
)

const (
	xRate = "go-x-rate"
	uber  = "go-uber"
)

// Limits that always and never grant.
func open() *rate.Limiter { return rate.NewLimiter(1e9, 1<<31-1) }

func shut() *rate.Limiter {
	limiter := rate.NewLimiter(rate.Every(time.Hour), 1)
	limiter.Allow()
	return limiter
}

func limitBenches() []bench {
	allow := func(limiter *rate.Limiter) func() { return func() { limiter.Allow() } }
	reserve := func(limiter *rate.Limiter) func() { return func() { limiter.Reserve() } }
	take := func(pacer ratelimit.Limiter) func() { return func() { pacer.Take() } }
	return []bench{
		{"limit.allow.1t", xRate, func() sample { return calls(1, allow(open())) }},
		{"limit.allow.2t", xRate, func() sample { return calls(2, allow(open())) }},
		{"limit.deny.1t", xRate, func() sample { return calls(1, allow(shut())) }},
		{"limit.deny.2t", xRate, func() sample { return calls(2, allow(shut())) }},
		{"limit.reserve.1t", xRate, func() sample { return calls(1, reserve(open())) }},
		{"limit.reserve.2t", xRate, func() sample { return calls(2, reserve(open())) }},
		{"pacer.take.1t", uber, func() sample { return calls(1, take(ratelimit.New(1e9))) }},
		{"pacer.take.2t", uber, func() sample { return calls(2, take(ratelimit.New(1e9))) }},
		{"primitive.now", "go", func() sample { return calls(1, func() { time.Now() }) }},
		{"primitive.lock", "go", func() sample {
			var lock sync.Mutex
			return calls(1, func() { lock.Lock(); lock.Unlock() })
		}},
		{"keyed.1k", xRate, func() sample { return keyed(1000) }},
		{"keyed.1M", xRate, func() sample { return keyed(million) }},
	}
}

func calls(threads int, call func()) sample {
	each := ops(10*million, 2*million) / threads
	return timed(each*threads, func() {
		var callers sync.WaitGroup
		for range threads {
			callers.Go(func() {
				for range each {
					call()
				}
			})
		}
		callers.Wait()
	})
}

// keyed is a limiter for each key in a map behind a mutex, as users write it. Its
// buckets are deep and fill slowly, so that no system may forget a full one.
func keyed(keys int) sample {
	var lock sync.Mutex
	limiters := map[uint64]*rate.Limiter{}
	allow := func(key uint64) bool {
		lock.Lock()
		limiter, known := limiters[key]
		if !known {
			limiter = rate.NewLimiter(1, 1<<31-1)
			limiters[key] = limiter
		}
		lock.Unlock()
		return limiter.Allow()
	}
	for key := range keys {
		allow(uint64(key))
	}
	count := ops(10*million, 2*million)
	return timed(count, func() {
		for i := range count {
			allow(uint64(i % keys))
		}
	})
}
