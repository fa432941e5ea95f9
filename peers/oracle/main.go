// Command oracle drives the Go originals with seeded random calls and writes down
// what they answered, one history to a line. peers/README.md describes the rows.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

var (
	out  = flag.String("out", ".", "directory for the vectors")
	seed = flag.Uint64("seed", 1, "seed of all random choices")
)

// The oracle runs as a test because a bubble of fake time, which it needs to know that
// the originals' goroutines have caught up, is only to be had from one.
func main() {
	all := func(string, string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: "oracle", F: oracle}}, nil, nil)
}

func oracle(t *testing.T) {
	for i, file := range files {
		random := rand.New(rand.NewPCG(*seed, uint64(i)))
		histories := file.histories(source{random, t})
		if err := write(filepath.Join(*out, file.name), histories); err != nil {
			t.Fatal(err)
		}
	}
}

var files = []struct {
	name      string
	histories func(source) []any
}{
	{"rate.jsonl", rateHistories},
	{"pacer.jsonl", pacerHistories},
	{"policies.jsonl", policyHistories},
	{"queue.jsonl", queueHistories},
	{"priority.jsonl", priorityHistories},
}

func write(path string, histories []any) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	buffer := bufio.NewWriter(file)
	lines := json.NewEncoder(buffer)
	for _, history := range histories {
		if err := lines.Encode(history); err != nil {
			return err
		}
	}
	if err := buffer.Flush(); err != nil {
		return err
	}
	return file.Close()
}

// row is one call and its answer: its name, its arguments, what came back.
type row = []any

// source is where histories take their choices from, and their fake time.
type source struct {
	*rand.Rand
	t *testing.T
}

// bubble runs f where time stands still until every goroutine waits for it. Once
// synctest.Wait returns there, the originals' own goroutines have caught up.
func (s source) bubble(f func()) { synctest.Test(s.t, func(*testing.T) { f() }) }

func bits(x float64) string { return fmt.Sprintf("%016x", math.Float64bits(x)) }

func pick[T any](random source, from ...T) T { return from[random.IntN(len(from))] }

func chance(random source, percent int) bool { return random.IntN(100) < percent }

// duration spreads evenly over the orders of magnitude up to most.
func duration(random source, most time.Duration) time.Duration {
	return time.Duration(math.Exp(random.Float64() * math.Log(float64(most))))
}
