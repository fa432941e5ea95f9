package main

import (
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
)

type queueHistory struct {
	Policy policy `json:"policy"`
	// Decision is the number of the design decision that makes requeue answer some row of
	// this history differently; 0 if all rows are equal.
	Decision int   `json:"decision,omitempty"`
	Steps    []row `json:"steps"`
}

func queueHistories(random source) []any {
	var histories []any
	for len(histories) < 300 {
		if history, comparable := randomQueueHistory(random); comparable {
			histories = append(histories, history)
		}
	}
	return append(histories, queueDifferences(random)...)
}

// queueRun is one queue, the recorded calls, and the keys that the worker holds.
type queueRun struct {
	queue     workqueue.TypedRateLimitingInterface[int]
	policy    limiter
	held      []int
	deadlines map[time.Time]bool
	tie       bool
	steps     []row
}

func newQueueRun(p policy) *queueRun {
	run := &queueRun{deadlines: map[time.Time]bool{}}
	run.policy = observed{p.build(), run}
	run.queue = workqueue.NewTypedRateLimitingQueue(run.policy)
	return run
}

// observed reports to its run when a rate-limited key will be ready.
type observed struct {
	limiter
	run *queueRun
}

func (w observed) When(key int) time.Duration {
	delay := w.limiter.When(key)
	w.run.readyAfter(delay)
	return delay
}

// readyAfter detects ties. Go's heap delivers keys with equal deadlines in arbitrary order;
// requeue delivers them in the order in which they were added.
func (r *queueRun) readyAfter(delay time.Duration) {
	if delay > 0 {
		at := time.Now().Add(delay)
		r.tie = r.tie || r.deadlines[at]
		r.deadlines[at] = true
	}
}

func randomQueueHistory(random source) (history queueHistory, comparable bool) {
	history.Policy = randomPolicy(random, 1)
	random.bubble(func() {
		run := newQueueRun(history.Policy)
		keys := 2 + random.IntN(6)
		for range 60 {
			run.call(random, random.IntN(keys))
		}
		run.shutDown()
		for range 15 {
			run.callClosing(random, random.IntN(keys))
		}
		history.Steps, comparable = run.steps, !run.tie
	})
	return history, comparable
}

func (r *queueRun) call(random source, key int) {
	switch p := random.IntN(100); {
	case p < 22:
		r.add(key)
	case p < 46:
		r.get()
	case p < 64:
		r.done(random)
	case p < 74:
		r.addAfter(key, pick(random, 0, duration(random, 10*time.Second), duration(random, 10*time.Second)))
	case p < 80:
		r.addRateLimited(key)
	case p < 83:
		r.queue.Forget(key)
		r.note("forget", key)
	case p < 86:
		r.note("requeues", key, r.queue.NumRequeues(key))
	default:
		r.advance(duration(random, 5*time.Second))
	}
}

// callClosing avoids rate-limited adds: on a closed queue requeue does not charge the
// limiter.
func (r *queueRun) callClosing(random source, key int) {
	switch p := random.IntN(100); {
	case p < 15:
		r.add(key)
	case p < 50:
		r.get()
	case p < 80:
		r.done(random)
	case p < 90:
		r.addAfter(key, duration(random, time.Second))
	default:
		r.advance(duration(random, 5*time.Second))
	}
}

func (r *queueRun) add(key int) {
	r.queue.Add(key)
	r.note("add", key)
}

// get calls Get only if it would return. It records null for a call that would block.
func (r *queueRun) get() {
	if r.queue.Len() == 0 && !r.queue.ShuttingDown() {
		r.note("get", nil)
		return
	}
	key, closed := r.queue.Get()
	if closed {
		r.note("get", "closed")
		return
	}
	r.held = append(r.held, key)
	r.note("get", key)
}

func (r *queueRun) done(random source) {
	if len(r.held) == 0 {
		r.get()
		return
	}
	r.doneAt(random.IntN(len(r.held)))
}

func (r *queueRun) doneAt(which int) {
	key := r.held[which]
	r.held = append(r.held[:which], r.held[which+1:]...)
	r.queue.Done(key)
	r.note("done", key)
}

func (r *queueRun) addAfter(key int, delay time.Duration) {
	r.readyAfter(delay)
	r.queue.AddAfter(key, delay)
	r.note("add_after", key, delay.Nanoseconds())
}

func (r *queueRun) addRateLimited(key int) {
	r.queue.AddRateLimited(key)
	r.note("add_rate_limited", key)
}

func (r *queueRun) advance(step time.Duration) {
	time.Sleep(step)
	r.note("advance", step.Nanoseconds())
}

func (r *queueRun) shutDown() {
	r.queue.ShutDown()
	r.note("shut_down", r.queue.ShuttingDown())
}

// note records a call and the number of ready keys after the delaying goroutine has
// nothing left to do.
func (r *queueRun) note(step ...any) {
	synctest.Wait()
	r.steps = append(r.steps, append(step, r.queue.Len()))
}

// queueDifferences returns short histories that end with rows that requeue answers
// differently.
func queueDifferences(random source) []any {
	second := policy{Kind: "exponential", Base: 1_000_000_000, Max: 60_000_000_000}
	write := func(decision int, calls func(*queueRun)) any {
		history := queueHistory{Policy: second, Decision: decision}
		random.bubble(func() {
			run := newQueueRun(second)
			calls(run)
			history.Steps = run.steps
			run.queue.ShutDown()
		})
		return history
	}
	return []any{
		write(5, tiedDelays),
		write(6, drainWithReadyKeys),
		write(7, rateLimitedAfterShutDown),
	}
}

func tiedDelays(r *queueRun) {
	for key := range 6 {
		r.addAfter(key, time.Second)
	}
	r.advance(time.Second)
	for range 6 {
		r.get()
	}
}

func drainWithReadyKeys(r *queueRun) {
	r.add(0)
	r.add(1)
	r.get()
	drained := false
	go func() {
		r.queue.ShutDownWithDrain()
		drained = true
	}()
	synctest.Wait()
	r.note("drain", drained)
	r.doneAt(0)
	r.note("drained", drained)
}

func rateLimitedAfterShutDown(r *queueRun) {
	r.addRateLimited(0)
	r.note("requeues", 0, r.queue.NumRequeues(0))
	r.shutDown()
	r.addRateLimited(0)
	r.note("requeues", 0, r.queue.NumRequeues(0))
}
