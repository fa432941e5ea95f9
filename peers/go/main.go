// Command peers measures one Go system in one scenario and prints the result as JSON.
//
//	peers list
//	peers [-quick] <scenario> <system>
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
)

// bench is one scenario on one system.
type bench struct {
	scenario, system string
	run              func() sample
}

var quick = flag.Bool("quick", false, "fewer operations")

func main() {
	flag.Parse()
	benches := all()
	if flag.Arg(0) == "list" {
		for _, b := range benches {
			fmt.Println(b.scenario, b.system)
		}
		return
	}
	for _, b := range benches {
		if b.scenario == flag.Arg(0) && b.system == flag.Arg(1) {
			json.NewEncoder(os.Stdout).Encode(b.run())
			return
		}
	}
	fmt.Fprintf(os.Stderr, "unknown scenario %q or system %q\n", flag.Arg(0), flag.Arg(1))
	os.Exit(2)
}

func all() []bench {
	var benches []bench
	for _, part := range [][]bench{
		queueBenches(), throughputBenches(), delayBenches(), retryBenches(), limitBenches(), memoryBenches(),
	} {
		benches = append(benches, part...)
	}
	return benches
}
