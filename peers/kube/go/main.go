// Command controller-runtime runs one benchmark of scripts/bench-kube with controller-runtime.
//
//	controller-runtime SCENARIO NAMESPACE COUNT
//
// It prints one JSON object with the measured values, as the Rust program does.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const workers = 8

// bench counts reconciles and records when each value was first seen.
type bench struct {
	client client.Client
	work   time.Duration

	mu    sync.Mutex
	seen  map[string]time.Time
	runs  int
	first map[string]bool
	news  chan struct{}
}

func (b *bench) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var object corev1.ConfigMap
	if err := b.client.Get(ctx, req.NamespacedName, &object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	now := time.Now()
	if b.work > 0 {
		time.Sleep(b.work)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	value := req.Name + "=" + object.Data["value"]
	if _, ok := b.seen[value]; !ok {
		b.seen[value] = now
	}
	b.first[req.Name] = true
	b.runs++
	select {
	case b.news <- struct{}{}:
	default:
	}
	return reconcile.Result{}, nil
}

// wait blocks until a condition on the counters holds.
func (b *bench) wait(holds func() bool) {
	for {
		b.mu.Lock()
		ok := holds()
		b.mu.Unlock()
		if ok {
			return
		}
		<-b.news
	}
}

func (b *bench) waitFor(value string) time.Time {
	var at time.Time
	b.wait(func() bool {
		var ok bool
		at, ok = b.seen[value]
		return ok
	})
	return at
}

func main() {
	log.SetLogger(logr.Discard())
	scenario, namespace := os.Args[1], os.Args[2]
	count, err := strconv.Atoi(os.Args[3])
	check(err)
	rest, err := config.GetConfig()
	check(err)
	rest.QPS = -1
	result := run(scenario, namespace, count, rest)
	check(json.NewEncoder(os.Stdout).Encode(result))
}

func run(scenario, namespace string, count int, rest *rest.Config) map[string]float64 {
	mgr, err := ctrl.NewManager(rest, ctrl.Options{
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics: server.Options{BindAddress: "0"},
	})
	check(err)
	b := &bench{
		client: mgr.GetClient(),
		seen:   map[string]time.Time{},
		first:  map[string]bool{},
		news:   make(chan struct{}, 1),
	}
	if scenario == "urgent" {
		b.work = 5 * time.Millisecond
	}
	events := make(chan event.GenericEvent, count)
	priority := true
	check(ctrl.NewControllerManagedBy(mgr).
		For(&corev1.ConfigMap{}).
		WatchesRawSource(source.Channel(events, &handler.EnqueueRequestForObject{}, source.WithBufferSize[client.Object, reconcile.Request](count))).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, UsePriorityQueue: &priority}).
		Complete(b))
	direct, err := kubernetes.NewForConfig(rest)
	check(err)

	memory, began, cpu := rss(), time.Now(), cpuTime()
	go func() { check(mgr.Start(context.Background())) }()
	result := map[string]float64{}
	switch scenario {
	case "start", "again":
		b.wait(func() bool { return len(b.first) >= count })
		result["wall_ms"] = ms(time.Since(began))
		result["cpu_ms"] = ms(cpuTime() - cpu)
		result["bytes_per_object"] = float64(rss()-memory) / float64(count)
		if scenario == "again" {
			again(b, events, namespace, count, result)
		}
	case "edits":
		b.wait(func() bool { return len(b.first) >= count })
		cpu = cpuTime()
		edits(b, direct, namespace, count, 500, 0, result)
		result["cpu_ms"] = ms(cpuTime() - cpu)
	case "urgent":
		b.wait(func() bool { return b.runs >= workers })
		edits(b, direct, namespace, count, 20, 40*time.Millisecond, result)
	}
	return result
}

func again(b *bench, events chan event.GenericEvent, namespace string, count int, result map[string]float64) {
	b.mu.Lock()
	names := make([]string, 0, len(b.first))
	for name := range b.first {
		names = append(names, name)
	}
	target := b.runs + count
	b.mu.Unlock()
	began, cpu := time.Now(), cpuTime()
	for _, name := range names {
		events <- event.GenericEvent{Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}}
	}
	b.wait(func() bool { return b.runs >= target })
	result["wall_ms"] = ms(time.Since(began))
	result["cpu_ms"] = ms(cpuTime() - cpu)
}

// edits patches one object after the other. Urgent edits do not wait for each other.
func edits(b *bench, direct *kubernetes.Clientset, namespace string, count, edits int, pause time.Duration, result map[string]float64) {
	var sent []time.Time
	var values []string
	for n := range edits {
		name := fmt.Sprintf("object-%05d", (n*7919)%count)
		value := fmt.Sprintf("edit-%d-%d", os.Getpid(), n)
		patch := []byte(`{"data":{"value":"` + value + `"}}`)
		sent = append(sent, time.Now())
		_, err := direct.CoreV1().ConfigMaps(namespace).Patch(context.Background(), name, types.MergePatchType, patch, metav1.PatchOptions{})
		check(err)
		values = append(values, name+"="+value)
		if pause == 0 {
			b.waitFor(values[n])
		} else {
			time.Sleep(pause)
		}
	}
	var latencies []float64
	for n, value := range values {
		latencies = append(latencies, ms(b.waitFor(value).Sub(sent[n])))
	}
	sort.Float64s(latencies)
	result["edit_p50_ms"] = latencies[len(latencies)/2]
	result["edit_p99_ms"] = latencies[len(latencies)*99/100]
	result["edit_max_ms"] = latencies[len(latencies)-1]
}

func cpuTime() time.Duration {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func rss() int64 {
	status, err := os.ReadFile("/proc/self/status")
	check(err)
	for _, line := range strings.Split(string(status), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			kilobytes, err := strconv.ParseInt(fields[1], 10, 64)
			check(err)
			return kilobytes * 1024
		}
	}
	panic("no VmRSS in /proc/self/status")
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func check(err error) {
	if err != nil {
		panic(err)
	}
}
