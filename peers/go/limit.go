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

// granting returns a limiter that always grants.
func granting() *rate.Limiter { return rate.NewLimiter(1e9, 1<<31-1) }

// refusing returns a limiter without tokens.
func refusing() *rate.Limiter {
	limiter := rate.NewLimiter(rate.Every(time.Hour), 1)
	limiter.Allow()
	return limiter
}

func limitBenches() []bench {
	allow := func(limiter *rate.Limiter) func() { return func() { limiter.Allow() } }
	reserve := func(limiter *rate.Limiter) func() { return func() { limiter.Reserve() } }
	take := func(pacer ratelimit.Limiter) func() { return func() { pacer.Take() } }
	return []bench{
		{"limit.allow.1t", xRate, func() sample { return calls(1, allow(granting())) }},
		{"limit.allow.2t", xRate, func() sample { return calls(2, allow(granting())) }},
		{"limit.deny.1t", xRate, func() sample { return calls(1, allow(refusing())) }},
		{"limit.deny.2t", xRate, func() sample { return calls(2, allow(refusing())) }},
		{"limit.reserve.1t", xRate, func() sample { return calls(1, reserve(granting())) }},
		{"limit.reserve.2t", xRate, func() sample { return calls(2, reserve(granting())) }},
		{"pacer.take.1t", uber, func() sample { return calls(1, take(ratelimit.New(1e9))) }},
		{"pacer.take.2t", uber, func() sample { return calls(2, take(ratelimit.New(1e9))) }},
		{"primitive.now", "go-std", func() sample { return calls(1, func() { time.Now() }) }},
		{"primitive.lock", "go-std", func() sample {
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

// keyed measures one limiter per key in a map behind a mutex, as users write it. The
// buckets are deep and fill slowly, because some systems forget full buckets.
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
