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
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/cuda"
	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/session"
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
	precision precision.Precision
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
	RecordedMs    *float64           `json:"recorded_ms"` // the median with a recorder attached; null where it was not measured
	PeakBytes     int64              `json:"peak_bytes"`  // allocated
	ReservedBytes int64              `json:"reserved_bytes"`
	Loss          float64            `json:"loss"`
}

func main() {
	names := flag.String("workloads", "gpt-char,gpt-char-2,gpt2s,qwen,qwen-2", "names in workloads.json, with commas")
	in := flag.String("precision", string(precision.FP32), precision.Usage())
	optimizer := flag.String("optimizer", "adamw", "adamw, PyTorch's default with temporaries, or adamw-fused")
	generate := flag.Bool("generate", false, "draw tokens from the workloads' models instead of training them")
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
	if err := run(strings.Split(*names, ","), *in, *optimizer, *profile, *generate); err != nil {
		fmt.Fprintln(os.Stderr, "gpu:", err)
		os.Exit(1)
	}
}

func run(names []string, in, optimizer string, profile, generate bool) error {
	var workloads map[string]workload
	if err := json.Unmarshal(workloadsJSON, &workloads); err != nil {
		return fmt.Errorf("workloads.json: %w", err)
	}
	p, err := precision.Parse(in)
	if err == nil {
		err = p.Trained()
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		w, ok := workloads[name]
		if !ok {
			return fmt.Errorf("unknown workload %q", name)
		}
		w.optimizer, w.precision = optimizer, p
		o := cuda.Options{Products: p.Products()}
		if profile {
			w.Steps = 2
			o.Profile = os.Stderr
			fmt.Fprintf(os.Stderr, "\n%s, %s\n", name, p)
		}
		if generate {
			if err := measureGeneration(name, w, o); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		m, err := measure(w, o)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		m.Workload, m.Program, m.Precision, m.Optimizer = name, "tidemark", in, optimizer
		if err := json.NewEncoder(os.Stdout).Encode(m); err != nil {
			return err
		}
	}
	return nil
}

const warmUp = 3

// measure runs a workload's steps without and with a recorder, turn by turn
// where both fit the card: what the host does besides decides small steps.
func measure(w workload, o cuda.Options) (m measured, err error) {
	plain, err := start(w, o, nil)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, plain.close()) }()
	if err := plain.warmUp(); err != nil {
		return m, err
	}
	var recorded *training
	if memory := plain.dev.Info().MemoryBytes; o.Profile == nil && memory != nil && plain.reservedBytes < *memory*2/5 {
		if recorded, err = start(w, o, instrument.New(instrument.Options{})); err != nil {
			return m, err
		}
		defer func() { err = errors.Join(err, recorded.close()) }()
		if err := recorded.warmUp(); err != nil {
			return m, err
		}
	}
	for range w.Steps {
		if err := plain.step(); err != nil {
			return m, err
		}
		if recorded != nil {
			if err := recorded.step(); err != nil {
				return m, err
			}
		}
	}
	m.StepMs, m.LeastMs = median(plain.milliseconds), slices.Min(plain.milliseconds)
	m.PeakBytes, m.ReservedBytes, m.Loss = plain.peakBytes, plain.reservedBytes, plain.loss
	if recorded == nil {
		return m, nil
	}
	ms := median(recorded.milliseconds)
	m.RecordedMs = &ms
	m.PhasesMs = map[string]float64{}
	all := recorded.recorder.Steps()
	for _, p := range all[len(all)-1].Phases {
		if p.Seconds != nil {
			m.PhasesMs[p.Name] = 1000 * *p.Seconds
		}
	}
	return m, nil
}

// training is a workload on a device of its own, with what its steps measured.
type training struct {
	dev      device.Device
	recorder *instrument.Recorder // nil for none
	trainer  *train.Trainer
	sources  train.Sources
	steps    int

	milliseconds             []float64 // after the warm-up
	peakBytes, reservedBytes int64
	loss                     float64
}

func start(w workload, o cuda.Options, r *instrument.Recorder) (t *training, err error) {
	config, err := models.ParseConfig(w.Model)
	if err != nil {
		return nil, err
	}
	s := train.Settings{Model: config, Data: train.DataSettings{Kind: "random-tokens"}, Loss: w.Loss, Steps: w.Steps + warmUp,
		Batch: w.Batch, Accumulate: 1, Tokens: w.Tokens, Optimizer: w.optimizer, Schedule: optim.Schedule{Kind: optim.Constant, LR: 1e-4},
		Seed: 1, DType: "float32", Precision: w.precision}
	t = &training{recorder: r}
	if t.sources, err = s.OpenSources(nil); err != nil {
		return nil, err
	}
	if t.dev, err = cuda.Open(0, o); err != nil {
		return nil, err
	}
	if r != nil {
		r.Attach(t.dev.Allocator())
	}
	t.trainer, err = train.FromSettings(t.dev, r, s, train.TrainerOptions{Session: session.Options{WorkspaceBytes: cuda.WorkspaceBytes}})
	if err != nil {
		return nil, errors.Join(err, t.dev.Close())
	}
	return t, nil
}

// warmUp does the steps that are not measured.
func (t *training) warmUp() error {
	for range warmUp {
		if err := t.step(); err != nil {
			return err
		}
	}
	t.milliseconds = nil
	return nil
}

// step does the next step, between two waits for the card.
func (t *training) step() error {
	batch := new(data.Batch)
	if err := t.sources.Train.Batch(t.steps, batch); err != nil {
		return err
	}
	if err := t.dev.Synchronize(); err != nil {
		return err
	}
	began := time.Now()
	stats, err := t.trainer.Step(once(batch))
	if err != nil {
		return err
	}
	if err := t.dev.Synchronize(); err != nil {
		return err
	}
	t.milliseconds = append(t.milliseconds, 1000*time.Since(began).Seconds())
	t.peakBytes, t.reservedBytes, t.loss = stats.AllocatedBytes, stats.ReservedBytes, *stats.Loss
	t.steps++
	return nil
}

func (t *training) close() error {
	t.trainer.Close()
	return t.dev.Close()
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// once gives a batch that was prepared before.
func once(b *data.Batch) func() (*data.Batch, error) {
	return func() (*data.Batch, error) { return b, nil }
}
