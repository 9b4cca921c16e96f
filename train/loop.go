package train

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/tidemark-lab/tidemark/data"
)

// LoopOptions say what Run does around the steps.
type LoopOptions struct {
	// SaveFolder is where the training is saved; empty for nowhere.
	SaveFolder string
	// SaveEvery saves after so many steps; 0 only at the end.
	SaveEvery int
	// Workers prepare batches ahead; 0 is 1.
	Workers int
	// RecordSteps is after how many steps of this run the recorder stops: a
	// memory timeline of a few steps says it all. 0 never stops it.
	RecordSteps int
	// OnStep and OnEvaluation get what each step and evaluation measured.
	OnStep       func(StepStats)
	OnEvaluation func(step int, e Evaluation)
}

// Run trains until the settings' number of steps is done or ctx is. However it
// ends, what was reached is saved: at the last whole step, except after a loss
// that is no number, when the last good save is left as it is.
func (t *Trainer) Run(ctx context.Context, src Sources, o LoopOptions) error {
	if err := t.fits(o.Workers); err != nil {
		return err
	}
	metrics, err := openMetrics(o.SaveFolder, t.step)
	if err != nil {
		return err
	}
	defer metrics.close()
	next := t.batches(ctx, src.Train, o.Workers)
	defer next.Close()
	saved, first := -1, t.step
	save := func() error {
		if o.SaveFolder == "" || saved == t.step {
			return nil
		}
		if err := metrics.flush(); err != nil {
			return err
		}
		if _, err := t.Save(o.SaveFolder); err != nil {
			return err
		}
		saved = t.step
		return nil
	}
	for t.step < t.Settings.Steps {
		if err := ctx.Err(); err != nil {
			return errors.Join(err, save())
		}
		stats, err := t.Step(next.Next)
		if err != nil {
			if ctx.Err() != nil { // the prefetcher stopped, not the step
				return errors.Join(ctx.Err(), save())
			}
			return err
		}
		if err := metrics.step(stats); err != nil {
			return err
		}
		if o.OnStep != nil {
			o.OnStep(stats)
		}
		if o.RecordSteps > 0 && t.step-first == o.RecordSteps {
			t.session.StopRecording()
		}
		last := t.step == t.Settings.Steps
		if every := t.Settings.EvaluateEvery; every > 0 && src.Validation != nil && (t.step%every == 0 || last) {
			e, err := t.Evaluate(src.Validation, t.Settings.EvaluateBatches)
			if err != nil {
				return err
			}
			if math.IsNaN(e.Loss) || math.IsInf(e.Loss, 0) {
				return &DivergedError{t.step, e.Loss}
			}
			if err := metrics.evaluation(t.step, e); err != nil {
				return err
			}
			if o.OnEvaluation != nil {
				o.OnEvaluation(t.step, e)
			}
		}
		if o.SaveEvery > 0 && t.step%o.SaveEvery == 0 {
			if err := save(); err != nil {
				return err
			}
		}
	}
	return save()
}

// fits refuses batches that cannot be held: those prepared ahead, the one on
// its way to the device and the device's own. The measure is the device's
// memory, which for the CPU is the machine's.
func (t *Trainer) fits(workers int) error {
	total := t.session.Device().Info().MemoryBytes
	if total == nil {
		return nil
	}
	var batch int64
	for _, spec := range t.graph.Specs {
		batch += spec.Bytes()
	}
	if held := 2*int64(max(workers, 1)) + 3; batch > *total/held {
		return fmt.Errorf("a batch of %d rows takes %d bytes, and %d batches are held at a time: more than the device's %d bytes of memory; take a smaller one",
			t.Settings.Batch, batch, held, *total)
	}
	return nil
}

// batches prepares the micro-batches from where the training stands.
func (t *Trainer) batches(ctx context.Context, src data.Source, workers int) *data.Prefetcher {
	return data.Prefetch(ctx, src, t.step*t.Settings.Accumulate, data.PrefetchOptions{Workers: workers})
}

// MetricsFile is the name of the file in the save folder with a line of JSON
// for each step and evaluation.
const MetricsFile = "metrics.jsonl"

// metrics is that file.
type metrics struct {
	f *os.File
	w *bufio.Writer
}

// openMetrics opens the file and drops the lines of steps that are to be done
// again, which a stop after the last save left.
func openMetrics(dir string, from int) (*metrics, error) {
	if dir == "" {
		return &metrics{}, nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	path := filepath.Join(dir, MetricsFile)
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	var keep bytes.Buffer
	for line := range bytes.Lines(old) {
		var l struct {
			Step       *int `json:"step"`
			Validation any  `json:"validation"`
		}
		if json.Unmarshal(line, &l) != nil || l.Step == nil {
			continue // a line that a kill cut short
		}
		if *l.Step < from || l.Validation != nil && *l.Step <= from {
			keep.Write(line)
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	if _, err := f.Write(keep.Bytes()); err != nil {
		f.Close()
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return &metrics{f, bufio.NewWriter(f)}, nil
}

func (m *metrics) line(v any) error {
	if m.f == nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	if _, err := m.w.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return m.w.Flush()
}

func (m *metrics) step(s StepStats) error { return m.line(s) }

func (m *metrics) evaluation(step int, e Evaluation) error {
	return m.line(struct {
		Step       int        `json:"step"`
		Validation Evaluation `json:"validation"`
	}{step, e})
}

func (m *metrics) flush() error {
	if m.f == nil {
		return nil
	}
	return m.f.Sync()
}

func (m *metrics) close() {
	if m.f != nil {
		m.f.Close()
	}
}
