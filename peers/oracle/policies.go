package main

import (
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

type limiter = workqueue.TypedRateLimiter[int]

// policy describes one of client-go's item limiters. Fields with value 0 are omitted.
type policy struct {
	Kind    string   `json:"kind"`
	Base    int64    `json:"base,omitempty"`
	Max     int64    `json:"max,omitempty"`
	Fast    int64    `json:"fast,omitempty"`
	Slow    int64    `json:"slow,omitempty"`
	MaxFast int      `json:"max_fast,omitempty"`
	Limit   string   `json:"limit,omitempty"`
	Burst   int      `json:"burst,omitempty"`
	Of      []policy `json:"of,omitempty"`
}

func (p policy) build() limiter {
	switch p.Kind {
	case "exponential":
		return workqueue.NewTypedItemExponentialFailureRateLimiter[int](time.Duration(p.Base), time.Duration(p.Max))
	case "fast_slow":
		return workqueue.NewTypedItemFastSlowRateLimiter[int](time.Duration(p.Fast), time.Duration(p.Slow), p.MaxFast)
	case "bucket":
		return &workqueue.TypedBucketRateLimiter[int]{Limiter: rate.NewLimiter(unbits(p.Limit), p.Burst)}
	case "max_of":
		var of []limiter
		for _, part := range p.Of {
			of = append(of, part.build())
		}
		return workqueue.NewTypedMaxOfRateLimiter(of...)
	case "max_wait":
		return workqueue.NewTypedWithMaxWaitRateLimiter(p.Of[0].build(), time.Duration(p.Max))
	case "controller_default":
		return workqueue.DefaultTypedControllerRateLimiter[int]()
	case "item_default":
		return workqueue.DefaultTypedItemBasedRateLimiter[int]()
	}
	panic("unknown policy: " + p.Kind)
}

type policyHistory struct {
	Policy policy `json:"policy"`
	Steps  []row  `json:"steps"`
}

func policyHistories(random source) []any {
	var histories []any
	for range 150 {
		histories = append(histories, randomPolicyHistory(random, randomPolicy(random, 2)))
	}
	for _, kind := range []string{"controller_default", "item_default"} {
		histories = append(histories, randomPolicyHistory(random, policy{Kind: kind}))
	}
	for _, edge := range edges() {
		histories = append(histories, failOneKey(random, edge.policy, edge.times))
	}
	return histories
}

func randomPolicyHistory(random source, p policy) policyHistory {
	history := policyHistory{Policy: p}
	random.bubble(func() {
		limiter := p.build()
		for range 50 {
			key := random.IntN(4)
			switch p := random.IntN(100); {
			case p < 60:
				history.note("when", key, limiter.When(key).Nanoseconds())
			case p < 68:
				limiter.Forget(key)
				history.note("forget", key)
			case p < 80:
				history.note("requeues", key, limiter.NumRequeues(key))
			default:
				step := duration(random, 10*time.Second)
				time.Sleep(step)
				history.note("advance", step.Nanoseconds())
			}
		}
	})
	return history
}

// edges returns policies for which base × 2^failures overflows: beyond 2^63 and, with base
// 0, where 2^failures becomes infinite.
func edges() []struct {
	policy policy
	times  int
} {
	const most = int64(1<<63 - 1)
	exponential := func(base, max int64) policy { return policy{Kind: "exponential", Base: base, Max: max} }
	return []struct {
		policy policy
		times  int
	}{
		{exponential(5_000_000, 1_000_000_000_000), 1100},
		{exponential(1_000_000, most), 70},
		{exponential(1, most), 70},
		{exponential(1<<20, 1_000_000_000_000), 70},
		{exponential(1<<62, most), 5},
		{exponential(3, most), 70},
		{exponential(most, most), 5},
		{exponential(0, 1_000_000_000), 1030},
		{exponential(1_000_000_000, 0), 5},
		{exponential(1_000_000_000, 10), 5},
		{policy{Kind: "fast_slow", Fast: 5, Slow: most, MaxFast: 0}, 3},
		{policy{Kind: "bucket", Limit: bits(10), Burst: 0}, 3},
		{policy{Kind: "bucket", Limit: bits(0), Burst: 2}, 4},
		{policy{Kind: "bucket", Limit: bits(1e-9), Burst: 1}, 12},
	}
}

func failOneKey(random source, p policy, times int) policyHistory {
	history := policyHistory{Policy: p}
	random.bubble(func() {
		limiter := p.build()
		for range times {
			history.note("when", 0, limiter.When(0).Nanoseconds())
		}
		history.note("requeues", 0, limiter.NumRequeues(0))
	})
	return history
}

func (h *policyHistory) note(step ...any) { h.Steps = append(h.Steps, step) }

func randomPolicy(random source, depth int) policy {
	kinds := []string{"exponential", "exponential", "fast_slow", "bucket"}
	if depth > 0 {
		kinds = append(kinds, "max_of", "max_wait")
	}
	switch kind := pick(random, kinds...); kind {
	case "exponential":
		base := duration(random, time.Second)
		return policy{Kind: kind, Base: base.Nanoseconds(), Max: (base + duration(random, time.Hour)).Nanoseconds()}
	case "fast_slow":
		fast, slow := duration(random, time.Second), duration(random, time.Minute)
		return policy{Kind: kind, Fast: fast.Nanoseconds(), Slow: slow.Nanoseconds(), MaxFast: random.IntN(6)}
	case "bucket":
		limit := rate.Every(duration(random, 5*time.Second))
		return policy{Kind: kind, Limit: bits(float64(limit)), Burst: 1 + random.IntN(20)}
	case "max_of":
		of := []policy{randomPolicy(random, depth-1), randomPolicy(random, depth-1)}
		return policy{Kind: kind, Of: of}
	default:
		of := []policy{randomPolicy(random, depth-1)}
		return policy{Kind: kind, Max: duration(random, time.Minute).Nanoseconds(), Of: of}
	}
}
