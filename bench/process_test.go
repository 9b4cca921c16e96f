package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Each measurement is a process of its own, this test program run again, so
// that its peak memory is one candidate's alone and no candidate runs in
// another's garbage.

// measureVariable tells a process to measure: "candidate workload".
const measureVariable = "TIDEMARK_BENCH_MEASURE"

func TestMain(m *testing.M) {
	if what := os.Getenv(measureVariable); what != "" {
		r, err := measure(what)
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(r)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// measurement is what a process found.
type measurement struct {
	Steps int `json:"steps"`
	// Seconds is the median step's.
	Seconds float64 `json:"seconds"`
	// Loss is that of the third step.
	Loss float64 `json:"loss"`
	// ResidentBytes is the largest resident memory of the whole process
	// (VmHWM), and StartBytes the same before the model was built; 0 where the
	// system does not say.
	ResidentBytes int64 `json:"resident_bytes"`
	StartBytes    int64 `json:"start_bytes"`
	// AllocatedBytes and ReservedBytes are the allocator's peaks; 0 for
	// candidates in Go's heap.
	AllocatedBytes int64 `json:"allocated_bytes"`
	ReservedBytes  int64 `json:"reserved_bytes"`
	// HeapBytes is what Go's heap took from the system, and LiveBytes what of
	// it is still referred to between two steps.
	HeapBytes int64 `json:"heap_bytes"`
	LiveBytes int64 `json:"live_bytes"`
}

const (
	warmSteps     = 2
	leastSteps    = 3
	measureLength = 1500 * time.Millisecond
	// slowLength ends a measurement of very slow steps before leastSteps.
	slowLength = 10 * time.Second
)

// measure runs one candidate in this process.
func measure(what string) (r measurement, err error) {
	name, workloadName, _ := strings.Cut(what, " ")
	i := slices.IndexFunc(workloads, func(w workload) bool { return w.name == workloadName })
	if i < 0 {
		return r, fmt.Errorf("workload %q is not known", workloadName)
	}
	w := workloads[i]
	batches, err := w.batches(2)
	if err != nil {
		return r, err
	}
	r.StartBytes = peakResident()
	c, err := newCandidate(name, w, batches)
	if err != nil {
		return r, err
	}
	defer c.close()
	var seconds []float64
	var spent time.Duration
	enough := func() bool {
		return spent >= measureLength && len(seconds) >= leastSteps || spent >= slowLength
	}
	for n := 0; !enough(); n++ {
		began := time.Now()
		loss, err := c.step(n % len(batches))
		if err != nil {
			return r, fmt.Errorf("step %d: %w", n, err)
		}
		took := time.Since(began)
		if n == 2 {
			r.Loss = loss
		}
		if n >= warmSteps {
			spent += took
			seconds = append(seconds, took.Seconds())
		}
	}
	slices.Sort(seconds)
	r.Steps, r.Seconds = len(seconds), seconds[len(seconds)/2]
	r.AllocatedBytes, r.ReservedBytes = c.memory()
	r.ResidentBytes = peakResident()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	r.HeapBytes = int64(m.HeapSys)
	runtime.GC()
	runtime.ReadMemStats(&m)
	r.LiveBytes = int64(m.HeapAlloc)
	runtime.KeepAlive(c)
	return r, nil
}

// peakResident is the largest resident memory of this process so far.
func peakResident() int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}

// inProcess measures a candidate in a fresh process.
func inProcess(candidate string, w workload) (r measurement, err error) {
	program, err := os.Executable()
	if err != nil {
		return r, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), measureVariable+"="+candidate+" "+w.name)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("%s on %s: %w: %s", candidate, w.name, err, strings.TrimSpace(stderr.String()))
	}
	return r, json.Unmarshal(out, &r)
}
