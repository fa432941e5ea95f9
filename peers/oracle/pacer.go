package main

import (
	"time"

	"go.uber.org/ratelimit"
)

const (
	pacers     = 120
	takesOfOne = 60
)

type pacerHistory struct {
	Rate  int   `json:"rate"`
	Per   int64 `json:"per"`
	Slack int   `json:"slack"`
	// Steps: how far the clock moved before the take, and how long the take slept.
	Steps [][2]int64 `json:"steps"`
}

// handClock stands still but for what a history or a sleeping take adds to it.
type handClock struct{ now, slept time.Duration }

func (c *handClock) Now() time.Time { return start.Add(c.now) }

func (c *handClock) Sleep(d time.Duration) {
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
	clock := &handClock{}
	limiter := ratelimit.New(count, ratelimit.Per(per), ratelimit.WithSlack(slack), ratelimit.WithClock(clock))
	spacing := per / time.Duration(count)
	for range takesOfOne {
		gap := pause(random, spacing, slack)
		clock.now += gap
		clock.slept = 0
		if taken := limiter.Take().Sub(start); taken != clock.now {
			panic("a take answers with the time at which it returns")
		}
		history.Steps = append(history.Steps, [2]int64{gap.Nanoseconds(), clock.slept.Nanoseconds()})
	}
	return history
}

// pause stays around the places where the rules change: no pause, one spacing, and the
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
