// Command oracle makes seeded random calls to the Go originals and records their answers,
// one history per line. peers/README.md describes the format.
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

// The oracle runs as a test because only tests can use synctest bubbles. It needs their
// fake time to know when the goroutines of the originals have nothing left to do.
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

// row is one call: its name, its arguments and its results.
type row = []any

// source provides random choices and fake time.
type source struct {
	*rand.Rand
	t *testing.T
}

// bubble runs f with fake time, which advances only when every goroutine is waiting. When
// synctest.Wait returns, the goroutines of the originals have nothing left to do.
func (s source) bubble(f func()) { synctest.Test(s.t, func(*testing.T) { f() }) }

func bits(x float64) string { return fmt.Sprintf("%016x", math.Float64bits(x)) }

func pick[T any](random source, from ...T) T { return from[random.IntN(len(from))] }

func chance(random source, percent int) bool { return random.IntN(100) < percent }

// duration returns a log-uniform random duration up to max.
func duration(random source, max time.Duration) time.Duration {
	return time.Duration(math.Exp(random.Float64() * math.Log(float64(max))))
}
