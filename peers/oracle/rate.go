package main

import (
	"math"
	"strconv"
	"time"

	"golang.org/x/time/rate"
)

const (
	limiters    = 480
	callsToEach = 50
)

type rateHistory struct {
	Limit string `json:"limit"`
	Burst int    `json:"burst"`
	Steps []row  `json:"steps"`
}

func rateHistories(random source) []any {
	var histories []any
	for range limiters {
		histories = append(histories, newRateRun(random).history())
	}
	return histories
}

// rateRun is one limiter and the recorded calls. Times are offsets from start.
type rateRun struct {
	random       source
	limiter      *rate.Limiter
	clock        time.Duration
	reservations []reservation
	steps        []row
	over         bool
}

// reservation also records how it was granted.
type reservation struct {
	*rate.Reservation
	act       time.Time
	n         int
	unlimited bool
}

var start = time.Unix(1_700_000_000, 0)

func newRateRun(random source) *rateRun {
	limiter := rate.NewLimiter(randomLimit(random), randomBurst(random))
	clock := duration(random, 24*time.Hour)
	return &rateRun{random: random, limiter: limiter, clock: clock}
}

func (r *rateRun) history() rateHistory {
	history := rateHistory{Limit: bits(float64(r.limiter.Limit())), Burst: r.limiter.Burst()}
	for range callsToEach {
		if r.over {
			break
		}
		r.moveClock()
		r.call()
	}
	history.Steps = r.steps
	return history
}

// moveClock mostly advances the clock, by a nanosecond to many days, and sometimes moves it
// back: calls with explicit times may be out of order.
func (r *rateRun) moveClock() {
	switch p := r.random.IntN(100); {
	case p < 20:
	case p < 32:
		r.clock = max(0, r.clock-duration(r.random, time.Hour))
	case p < 34:
		r.clock += duration(r.random, 10_000*time.Hour)
	case p < 70:
		r.clock += duration(r.random, 2*time.Second)
	default:
		r.clock += time.Duration(r.random.Int64N(int64(300 * time.Millisecond)))
	}
}

func (r *rateRun) call() {
	switch p := r.random.IntN(100); {
	case p < 34:
		r.allow()
	case p < 62:
		r.reserve()
	case p < 80:
		r.cancel()
	case p < 86:
		limit := randomLimit(r.random)
		r.limiter.SetLimitAt(r.now(), limit)
		r.note("set_limit", bits(float64(limit)))
	case p < 92:
		burst := randomBurst(r.random)
		r.limiter.SetBurstAt(r.now(), burst)
		r.note("set_burst", burst)
	default:
		r.clock = max(0, r.clock+pick[time.Duration](r.random, -1, 1)*duration(r.random, time.Minute))
		r.note("tokens")
	}
}

func (r *rateRun) allow() {
	n := r.randomN()
	r.note("allow", n, r.limiter.AllowN(r.now(), n))
}

// reserve ends the history at an infinite wait. Go grants such a reservation and goes into
// debt; requeue refuses it, so later rows cannot be compared.
func (r *rateRun) reserve() {
	n := r.randomN()
	granted := r.limiter.ReserveN(r.now(), n)
	wait := granted.DelayFrom(r.now())
	switch {
	case !granted.OK():
		r.note("reserve", n, nil)
	case wait == rate.InfDuration:
		r.over = true
		r.note("reserve", n, "never")
	default:
		unlimited := r.limiter.Limit() == rate.Inf
		r.reservations = append(r.reservations, reservation{granted, r.now().Add(wait), n, unlimited})
		r.note("reserve", n, wait.Nanoseconds())
	}
}

// cancel cancels a reservation once, mostly the latest one and mostly in time. It ends the
// history when Go creates tokens: a reservation without a limit took no tokens, but
// returns some if there is a limit by then.
func (r *rateRun) cancel() {
	open := len(r.reservations)
	if open == 0 {
		r.reserve()
		return
	}
	which := open - 1
	if chance(r.random, 40) {
		which = r.random.IntN(open)
	}
	chosen := r.reservations[which]
	r.reservations = append(r.reservations[:which], r.reservations[which+1:]...)
	if chance(r.random, 30) {
		r.clock += min(chosen.DelayFrom(r.now()), 1000*time.Hour)
	}
	chosen.CancelAt(r.now())
	limited := r.limiter.Limit() != rate.Inf
	r.over = chosen.unlimited && limited && chosen.n > 0 && !chosen.act.Before(r.now())
	r.note("cancel", which, r.over)
}

func (r *rateRun) now() time.Time { return start.Add(r.clock) }

func (r *rateRun) note(call string, rest ...any) {
	step := append(row{call, r.clock.Nanoseconds()}, rest...)
	r.steps = append(r.steps, append(step, bits(r.limiter.TokensAt(r.now()))))
}

func (r *rateRun) randomN() int {
	burst := r.limiter.Burst()
	return pick(r.random, 0, 1, 1, 1, 1, 1, 2, 2, 3, 7, burst/2, burst, burst+1)
}

func randomBurst(random source) int {
	return pick(random, 0, 1, 1, 1, 2, 3, 5, 10, 10, 64, 100, 1000, 1<<20, math.MaxInt32)
}

func randomLimit(random source) rate.Limit {
	switch p := random.IntN(100); {
	case p < 8:
		return rate.Inf
	case p < 13:
		return 0
	case p < 18:
		return rate.Limit(pick(random, 5e-324, 1e-300, 1e-12, 1e-9, 1e-8, 1e-6))
	case p < 45:
		return rate.Limit(pick(random, 0.1, 1, 2, 3, 7, 10, 50, 60, 100, 1000, 1e6, 1e9, 1e15, 1e300))
	case p < 75:
		return rate.Every(duration(random, 30*time.Second))
	default:
		return rate.Limit(math.Exp(random.Float64()*14 - 4))
	}
}

func unbits(hex string) rate.Limit {
	word, err := strconv.ParseUint(hex, 16, 64)
	if err != nil {
		panic(err)
	}
	return rate.Limit(math.Float64frombits(word))
}
