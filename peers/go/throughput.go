package main

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
)

func throughputBenches() []bench {
	var benches []bench
	for _, pairs := range []struct {
		scenario string
		count    int
	}{{"throughput.1p1c", 1}, {"throughput.2p2c", 2}, {"throughput.8p8c", 8}} {
		benches = append(benches,
			bench{pairs.scenario, clientGo, func() sample {
				return throughput(plain[uint64](), pairs.count, ops(2*million, 400_000))
			}},
			bench{pairs.scenario, controllerRuntime, func() sample {
				return throughput(prioritised[uint64](), pairs.count, ops(200_000, 20_000))
			}})
	}
	return append(benches,
		bench{"latency.single", clientGo, func() sample { return latency(plain[uint64](), single) }},
		bench{"latency.single", controllerRuntime, func() sample { return latency(prioritised[uint64](), single) }},
		bench{"latency.burst", clientGo, func() sample { return latency(plain[uint64](), burst) }},
		bench{"latency.burst", controllerRuntime, func() sample { return latency(prioritised[uint64](), burst) }})
}

// throughput moves count different keys from producers to the same number of consumers.
func throughput(queue workqueue.TypedInterface[uint64], pairs, count int) sample {
	var delivered atomic.Int64
	result := timed(count, func() {
		var producers, consumers sync.WaitGroup
		for p := range pairs {
			producers.Go(func() {
				for key := p; key < count; key += pairs {
					queue.Add(uint64(key))
				}
			})
			consumers.Go(func() {
				for {
					key, closed := queue.Get()
					if closed {
						return
					}
					queue.Done(key)
					if delivered.Add(1) == int64(count) {
						queue.ShutDown()
					}
				}
			})
		}
		producers.Wait()
		consumers.Wait()
	})
	if delivered.Load() != int64(count) {
		panic("keys were lost or delivered twice")
	}
	return result
}

// single adds one key every 20 µs.
func single(i int, began time.Time) {
	for time.Since(began) < time.Duration(i)*20*time.Microsecond {
	}
}

// burst adds 100 keys every millisecond.
func burst(i int, began time.Time) {
	if i%100 == 0 {
		time.Sleep(time.Duration(i/100)*time.Millisecond - time.Since(began))
	}
}

// latency measures the time from add to get, with one producer and one waiting consumer.
func latency(queue workqueue.TypedInterface[uint64], pace func(int, time.Time)) sample {
	count := ops(20_000, 5000)
	added, waits := make([]time.Time, count), make([]time.Duration, count)
	var consumer sync.WaitGroup
	consumer.Go(func() {
		for range count {
			key, _ := queue.Get()
			waits[key] = time.Since(added[key])
			queue.Done(key)
		}
	})
	began := time.Now()
	for i := range count {
		pace(i, began)
		added[i] = time.Now()
		queue.Add(uint64(i))
	}
	consumer.Wait()
	return median(waits)
}
