package main

import (
	"time"

	"go.uber.org/ratelimit"
)

const (
	pacers    = 120
	takesEach = 60
)

type pacerHistory struct {
	Rate  int   `json:"rate"`
	Per   int64 `json:"per"`
	Slack int   `json:"slack"`
	// Steps are pairs: how far the clock advanced before the take, and how long it slept.
	Steps [][2]int64 `json:"steps"`
}

// manualClock advances only when the history or a sleeping take advances it.
type manualClock struct{ now, slept time.Duration }

func (c *manualClock) Now() time.Time { return start.Add(c.now) }

func (c *manualClock) Sleep(d time.Duration) {
	c.now += d
	c.slept += d
}

func pacerHistories(random source) []any {
	var histories []any
	for range pacers {
		histories = append(histories, onePacer(random))
	}
	return histories
}

func onePacer(random source) pacerHistory {
	count := pick(random, 1, 2, 3, 5, 7, 10, 60, 100, 999, 1000, 250_000, 1_000_000)
	per := pick(random, time.Second, time.Second, time.Minute, time.Hour, 100*time.Millisecond)
	slack := pick(random, 10, 10, 10, 0, 0, 1, 2, 50)
	history := pacerHistory{Rate: count, Per: per.Nanoseconds(), Slack: slack}
	clock := &manualClock{}
	limiter := ratelimit.New(count, ratelimit.Per(per), ratelimit.WithSlack(slack), ratelimit.WithClock(clock))
	spacing := per / time.Duration(count)
	for range takesEach {
		gap := pause(random, spacing, slack)
		clock.now += gap
		clock.slept = 0
		if taken := limiter.Take().Sub(start); taken != clock.now {
			panic("Take did not return the current time")
		}
		history.Steps = append(history.Steps, [2]int64{gap.Nanoseconds(), clock.slept.Nanoseconds()})
	}
	return history
}

// pause returns values around which the behaviour changes: no pause, one interval, and the
// end of the slack.
func pause(random source, spacing time.Duration, slack int) time.Duration {
	full := spacing * time.Duration(slack+1)
	jitter := time.Duration(random.IntN(5) - 2)
	switch p := random.IntN(100); {
	case p < 50:
		return 0
	case p < 65:
		return max(0, spacing+jitter)
	case p < 80:
		return max(0, full+jitter)
	case p < 90:
		return duration(random, 4*full+time.Second)
	default:
		return duration(random, 2*spacing)
	}
}
