package main

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// sample is the result of one process: CPU and wall time per operation, or the median
// wall time of one key, or bytes per key.
type sample struct {
	CPU   float64 `json:"cpu_ns,omitempty"`
	Wall  float64 `json:"wall_ns,omitempty"`
	Bytes float64 `json:"bytes,omitempty"`
}

// timed measures f. CPU time is that of the whole process, including the collector.
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

// median returns the median of the waiting times of all keys.
func median(waits []time.Duration) sample {
	slices.Sort(waits)
	if waits[0] < 0 {
		panic("a key was early")
	}
	return sample{Wall: float64(waits[len(waits)/2])}
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

// names returns strings of 33 bytes that look like the namespace and name of a pod.
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

// randomDelays returns count pseudo-random durations from low to low+width, always the same.
func randomDelays(count int, low, width time.Duration) []time.Duration {
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
