package main

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// sample is what one process has to say: nanoseconds for each operation, or, where
// lateness or latency is the point, the median and the 99th percentile as wall time;
// bytes for each key where memory is.
type sample struct {
	CPU   float64 `json:"cpu_ns,omitempty"`
	Wall  float64 `json:"wall_ns,omitempty"`
	P99   float64 `json:"p99_ns,omitempty"`
	Bytes float64 `json:"bytes,omitempty"`
}

// timed charges f with the CPU time of the whole process, collector included.
func timed(ops int, f func()) sample {
	cpu, wall := cpuTime(), time.Now()
	f()
	elapsed := time.Since(wall)
	used := cpuTime() - cpu
	return sample{CPU: float64(used) / float64(ops), Wall: float64(elapsed) / float64(ops)}
}

func cpuTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

func quantiles(waits []time.Duration) sample {
	slices.Sort(waits)
	if waits[0] < 0 {
		panic("a key came before its time")
	}
	return sample{Wall: float64(waits[len(waits)/2]), P99: float64(waits[len(waits)*99/100])}
}

func ops(full, fast int) int {
	if *quick {
		return fast
	}
	return full
}

const million = 1_000_000

func numbers(count int) []uint64 {
	keys := make([]uint64, count)
	for i := range keys {
		keys[i] = uint64(i)
	}
	return keys
}

// names are 33 bytes long, as namespace and name of a pod may be.
func names(count int) []string {
	keys := make([]string, count)
	for i := range keys {
		name := []byte("namespace-00/pod-name-00000000000")
		digits(name[10:12], i%100)
		digits(name[22:], i)
		keys[i] = string(name)
	}
	return keys
}

func digits(into []byte, number int) {
	for at := len(into) - 1; number > 0; at-- {
		into[at] = '0' + byte(number%10)
		number /= 10
	}
}

// spread gives count durations between low and low+width, the same each time.
func spread(count int, low, width time.Duration) []time.Duration {
	delays := make([]time.Duration, count)
	state := uint64(0x9e3779b97f4a7c15)
	for i := range delays {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		delays[i] = low + time.Duration(state%uint64(width))
	}
	return delays
}
