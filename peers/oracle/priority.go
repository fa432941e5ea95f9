package main

import (
	"slices"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

type priorityHistory struct {
	// Decision is as in queueHistory.
	Decision int   `json:"decision,omitempty"`
	Steps    []row `json:"steps"`
}

func priorityHistories(random source) []any {
	var histories []any
	for range 200 {
		histories = append(histories, randomPriorityHistory(random))
	}
	return append(histories, priorityDifferences(random)...)
}

// priorityRun is one queue with a model of its state, which is needed to make only calls
// with a defined answer: the ready keys, the delayed keys and the held keys.
type priorityRun struct {
	queue   priorityqueue.PriorityQueue[int]
	ready   []int
	delayed map[int]time.Time
	held    []int
	steps   []row
}

func newPriorityRun() *priorityRun {
	quiet := func(o *priorityqueue.Opts[int]) {
		o.Log = logr.Discard()
		o.MetricProvider = noMetrics{}
	}
	return &priorityRun{queue: priorityqueue.New("", quiet), delayed: map[int]time.Time{}}
}

// noMetrics is never called, because the queue has no name.
type noMetrics struct{ workqueue.MetricsProvider }

func randomPriorityHistory(random source) (history priorityHistory) {
	random.bubble(func() {
		run := newPriorityRun()
		keys := 3 + random.IntN(10)
		for range 60 {
			run.call(random, random.IntN(keys))
		}
		history.Steps = run.steps
		run.queue.ShutDown()
	})
	return history
}

// call avoids two calls that requeue answers differently: adding a key that is being
// processed, and making a delayed key ready by adding it.
func (r *priorityRun) call(random source, key int) {
	_, delayed := r.delayed[key]
	switch p := random.IntN(100); {
	case p < 50:
		after := pick(random, 0, 0, 0, duration(random, 3*time.Second))
		if slices.Contains(r.held, key) || delayed && after == 0 {
			return
		}
		r.add(key, pick(random, -100, -1, 0, 0, 0, 1, 2, 10), after)
	case p < 72:
		r.get()
	case p < 88:
		if len(r.held) > 0 {
			r.doneAt(random.IntN(len(r.held)))
		}
	default:
		r.advance(duration(random, 3*time.Second))
	}
}

func (r *priorityRun) add(key, priority int, after time.Duration) {
	r.queue.AddWithOpts(priorityqueue.AddOpts{After: after, Priority: &priority}, key)
	at, delayed := r.delayed[key]
	ready := slices.Contains(r.ready, key)
	switch fresh := time.Now().Add(after); {
	case ready:
	case after <= 0:
		delete(r.delayed, key)
		r.ready = append(r.ready, key)
	case !delayed || fresh.Before(at):
		r.delayed[key] = fresh
	}
	r.note("add", key, priority, after.Nanoseconds())
}

// get calls Get only if some ready key is not held. It records null for a call that would
// block.
func (r *priorityRun) get() {
	free := func(key int) bool { return !slices.Contains(r.held, key) }
	if !slices.ContainsFunc(r.ready, free) {
		r.note("get", nil, nil)
		return
	}
	key, priority, _ := r.queue.GetWithPriority()
	r.ready = slices.DeleteFunc(r.ready, func(k int) bool { return k == key })
	r.held = append(r.held, key)
	r.note("get", key, priority)
}

func (r *priorityRun) doneAt(which int) {
	key := r.held[which]
	r.held = slices.Delete(r.held, which, which+1)
	r.queue.Done(key)
	r.note("done", key)
}

func (r *priorityRun) advance(step time.Duration) {
	time.Sleep(step)
	for key, at := range r.delayed {
		if !at.After(time.Now()) {
			delete(r.delayed, key)
			r.ready = append(r.ready, key)
		}
	}
	r.note("advance", step.Nanoseconds())
}

func (r *priorityRun) note(step ...any) {
	synctest.Wait()
	r.steps = append(r.steps, append(step, r.queue.Len()))
}

// priorityDifferences returns short histories that end with rows that requeue answers
// differently.
func priorityDifferences(random source) []any {
	write := func(decision int, calls func(*priorityRun)) any {
		history := priorityHistory{Decision: decision}
		random.bubble(func() {
			run := newPriorityRun()
			calls(run)
			history.Steps = run.steps
			run.queue.ShutDown()
		})
		return history
	}
	return []any{write(3, addedWhileHeld), write(11, delayedThenAdded)}
}

// addedWhileHeld: Go keeps the position of the second add; requeue puts the key at the
// tail when its lease ends.
func addedWhileHeld(r *priorityRun) {
	r.add(0, 0, 0)
	r.get()
	r.add(0, 0, 0)
	r.add(1, 0, 0)
	r.doneAt(0)
	r.get()
	r.get()
}

// delayedThenAdded: Go orders the key by its delayed add; requeue orders it by the time at
// which it became ready.
func delayedThenAdded(r *priorityRun) {
	r.add(0, 0, time.Second)
	r.add(1, 0, 0)
	r.add(0, 0, 0)
	r.get()
	r.get()
}
