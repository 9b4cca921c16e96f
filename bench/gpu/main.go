// Command gpu measures training steps on a card: the workloads of
// workloads.json, each with the time of a step and the peak of memory. It
// prints a line of JSON for each. compare.py runs it and PyTorch turn by turn.
package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-lab/tidemark/data"
	"github.com/tidemark-lab/tidemark/device/cuda"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train"
)

//go:embed workloads.json
var workloadsJSON []byte

type workload struct {
	Model  json.RawMessage `json:"model"`
	Batch  int             `json:"batch"`
	Tokens int             `json:"tokens"`
	Loss   train.Loss      `json:"loss"`
	Steps  int             `json:"steps"`

	optimizer string
	mixed     bool
}

// measured is what is printed of a workload.
type measured struct {
	Workload      string             `json:"workload"`
	Program       string             `json:"program"`
	Precision     string             `json:"precision"`
	Optimizer     string             `json:"optimizer"`
	StepMs        float64            `json:"step_ms"`     // the median
	LeastMs       float64            `json:"least_ms"`    // the fastest step
	PhasesMs      map[string]float64 `json:"phases_ms"`   // of one recorded step
	RecordedMs    float64            `json:"recorded_ms"` // the median with a recorder attached
	PeakBytes     int64              `json:"peak_bytes"`  // allocated
	ReservedBytes int64              `json:"reserved_bytes"`
	Loss          float64            `json:"loss"`
}

func main() {
	names := flag.String("workloads", "gpt-char,gpt-char-2,gpt2s,qwen,qwen-2", "names in workloads.json, with commas")
	precision := flag.String("precision", "fp32", "fp32; tf32: products of float32 matrices round their operands; bf16: mixed precision")
	optimizer := flag.String("optimizer", "adamw", "adamw, PyTorch's default with temporaries, or adamw-fused")
	profile := flag.Bool("profile", false, "print the time of each kind of call, after two steps of each workload")
	cpu := flag.String("cpuprofile", "", "file for a profile of the host's work")
	flag.Parse()
	if *cpu != "" {
		f, err := os.Create(*cpu)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "gpu: -cpuprofile:", err)
			os.Exit(1)
		}
		defer f.Close()
		defer pprof.StopCPUProfile()
	}
	if err := run(strings.Split(*names, ","), *precision, *optimizer, *profile); err != nil {
		fmt.Fprintln(os.Stderr, "gpu:", err)
		os.Exit(1)
	}
}

func run(names []string, precision, optimizer string, profile bool) error {
	var workloads map[string]workload
	if err := json.Unmarshal(workloadsJSON, &workloads); err != nil {
		return fmt.Errorf("workloads.json: %w", err)
	}
	mixed, p := precision == "bf16", cuda.FP32
	if !mixed {
		var err error
		if p, err = cuda.ParsePrecision(precision); err != nil {
			return err
		}
	}
	for _, name := range names {
		w, ok := workloads[name]
		if !ok {
			return fmt.Errorf("unknown workload %q", name)
		}
		w.optimizer, w.mixed = optimizer, mixed
		o := cuda.Options{Precision: p}
		if profile {
			w.Steps = 2
			o.Profile = os.Stderr
			fmt.Fprintf(os.Stderr, "\n%s, %s\n", name, precision)
		}
		m, err := measure(w, o)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		m.Workload, m.Program, m.Precision, m.Optimizer = name, "tidemark", precision, optimizer
		if err := json.NewEncoder(os.Stdout).Encode(m); err != nil {
			return err
		}
	}
	return nil
}

const warmUp = 3

// measure runs a workload's steps, first without and then with a recorder.
func measure(w workload, o cuda.Options) (m measured, err error) {
	plain, err := steps(w, o, nil)
	if err != nil {
		return m, err
	}
	m.StepMs, m.LeastMs = median(plain.milliseconds), slices.Min(plain.milliseconds)
	m.PeakBytes, m.ReservedBytes, m.Loss = plain.peakBytes, plain.reservedBytes, plain.loss
	if o.Profile != nil {
		return m, nil
	}
	r := instrument.New(instrument.Options{})
	recorded, err := steps(w, o, r)
	if err != nil {
		return m, err
	}
	r.Stop()
	m.RecordedMs = median(recorded.milliseconds)
	m.PhasesMs = map[string]float64{}
	all := r.Steps()
	for _, p := range all[len(all)-1].Phases {
		if p.Seconds != nil {
			m.PhasesMs[p.Name] = 1000 * *p.Seconds
		}
	}
	return m, nil
}

type timing struct {
	milliseconds             []float64
	peakBytes, reservedBytes int64
	loss                     float64
}

func steps(w workload, o cuda.Options, r *instrument.Recorder) (t timing, err error) {
	dev, err := cuda.Open(0, o)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	if r != nil {
		r.Attach(dev.Allocator())
	}
	config, err := nn.ParseConfig(w.Model)
	if err != nil {
		return t, err
	}
	s := train.Settings{Model: config, Data: train.DataSettings{Kind: "random-tokens"}, Loss: w.Loss, Steps: w.Steps + warmUp,
		Batch: w.Batch, Accumulate: 1, Tokens: w.Tokens, Optimizer: w.optimizer, Schedule: optim.Schedule{Kind: optim.Constant, LR: 1e-4},
		Seed: 1, DType: "float32", Mixed: w.mixed}
	trainer, err := train.NewTrainer(dev, r, s, train.TrainerOptions{Session: train.SessionOptions{WorkspaceBytes: cuda.WorkspaceBytes}})
	if err != nil {
		return t, err
	}
	defer trainer.Close()
	sources, err := s.OpenSources(nil)
	if err != nil {
		return t, err
	}
	for i := range w.Steps + warmUp {
		batch := new(data.Batch)
		if err := sources.Train.Batch(i, batch); err != nil {
			return t, err
		}
		if err := dev.Synchronize(); err != nil {
			return t, err
		}
		began := time.Now()
		stats, err := trainer.Step(once(batch))
		if err != nil {
			return t, err
		}
		if err := dev.Synchronize(); err != nil {
			return t, err
		}
		if i >= warmUp {
			t.milliseconds = append(t.milliseconds, 1000*time.Since(began).Seconds())
		}
		t.peakBytes, t.reservedBytes, t.loss = stats.AllocatedBytes, stats.ReservedBytes, *stats.Loss
	}
	return t, nil
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// once gives a batch that was prepared before.
func once(b *data.Batch) func() (*data.Batch, error) {
	return func() (*data.Batch, error) { return b, nil }
}
