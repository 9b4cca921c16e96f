package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tidemark-lab/tidemark/data"
)

// LoopOptions say what Run does around the steps.
type LoopOptions struct {
	// SaveFolder is where the training is saved; empty for nowhere.
	SaveFolder string
	// Folder is that folder where the caller has opened it, and will close it.
	Folder *SaveFolder
	// SaveEvery saves after so many steps; 0 only at the end.
	SaveEvery int
	// Workers prepare batches ahead; 0 is 1.
	Workers int
	// RecordSteps is after how many steps of this run the recorder stops: a
	// memory timeline of a few steps says it all. 0 never stops it.
	RecordSteps int
	// OnStart is called before the first step, after so many that are done.
	OnStart func(steps int)
	// Most ends the run after so many steps of its own; 0: when all are done.
	Most int
	// BeforeStep is called before each step, after so many that are done.
	BeforeStep func(steps int)
	// OnStep and OnEvaluation get what each step and evaluation measured. An
	// error of the first ends the run.
	OnStep       func(StepStats) error
	OnEvaluation func(step int, e Evaluation)
	// OnEnd is called at the end, when what was reached is saved: after how many
	// steps, and why it ended, nil being that all are done.
	OnEnd func(steps int, err error)
}

// Run trains until the number of steps is done or ctx is. A device that computes
// nothing needs no sources. However it
// ends, what was reached is saved, at the last whole step: on an error in a
// batch, an evaluation or a line of the metrics, too. Only a training that has
// diverged (DivergedError), or whose last step failed half way, is not: the last
// good save is left as it is.
func (t *Trainer) Run(ctx context.Context, src Sources, o LoopOptions) (err error) {
	if err := t.fits(o.Workers); err != nil {
		return err
	}
	folder := o.Folder
	if folder == nil && o.SaveFolder != "" {
		if folder, err = OpenSaveFolder(o.SaveFolder); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, folder.Close()) }()
	}
	l := &loop{t: t, ctx: ctx, src: src, o: o, first: t.step, saved: -1}
	if folder != nil {
		l.dir = folder.dir
		if err := folder.check(t.step); err != nil {
			return fmt.Errorf("save folder %s: %w", folder.dir, err)
		}
	}
	if l.metrics, err = openMetrics(l.dir, t.step); err != nil {
		return err
	}
	defer l.metrics.close()
	defer func(f *SaveFolder) { t.folder = f }(t.folder)
	t.folder = folder
	defer t.session.Interrupt(ctx.Err)()
	if src.Train != nil {
		batches := t.batches(ctx, src.Train, o.Workers)
		defer batches.Close()
		l.next = batches.Next
	}
	if o.OnEnd != nil {
		defer func() { o.OnEnd(t.step, err) }()
	}
	if o.OnStart != nil {
		o.OnStart(t.step)
	}
	err = l.run()
	var diverged *DivergedError
	if t.torn != nil || errors.As(err, &diverged) {
		return err
	}
	return errors.Join(err, l.save())
}

// loop is a run of a trainer.
type loop struct {
	t       *Trainer
	ctx     context.Context
	src     Sources
	o       LoopOptions
	dir     string // empty for nowhere
	metrics *metrics
	next    func() (*data.Batch, error) // nil without batches
	first   int                         // the step it began at
	saved   int                         // the step of the last attempt to save
}

func (l *loop) run() error {
	t := l.t
	// An evaluation that a stop cut short comes first.
	if l.dir != "" && t.step > 0 && l.metrics.evaluated < t.step && l.evaluates(false) {
		if err := l.evaluate(); err != nil {
			return err
		}
	}
	for t.step < t.options.Steps && (l.o.Most == 0 || t.step-l.first < l.o.Most) {
		if err := l.ctx.Err(); err != nil {
			return err
		}
		if l.o.BeforeStep != nil {
			l.o.BeforeStep(t.step)
		}
		stats, err := t.Step(l.next)
		if err != nil {
			return cmp.Or(l.ctx.Err(), err) // a stop comes as an error of the batch
		}
		if err := l.metrics.step(stats); err != nil {
			return err
		}
		if l.o.OnStep != nil {
			if err := l.o.OnStep(stats); err != nil {
				return err
			}
		}
		if l.o.RecordSteps > 0 && t.step-l.first == l.o.RecordSteps {
			t.session.StopRecording()
		}
		if l.evaluates(t.step == t.options.Steps) {
			if err := l.evaluate(); err != nil {
				return err
			}
		}
		if l.o.SaveEvery > 0 && t.step%l.o.SaveEvery == 0 {
			if err := l.save(); err != nil {
				return err
			}
		}
	}
	return nil
}

// evaluates reports whether there is an evaluation after the steps done so far.
func (l *loop) evaluates(last bool) bool {
	every := l.t.options.EvaluateEvery
	return every > 0 && l.src.Validation != nil && (l.t.step%every == 0 || last)
}

func (l *loop) evaluate() error {
	t := l.t
	e, err := t.Evaluate(l.src.Validation, t.options.EvaluateBatches)
	if err != nil {
		return cmp.Or(l.ctx.Err(), err)
	}
	if !finite(e.Loss) {
		return &DivergedError{Step: t.step, What: "the held-out loss", Value: e.Loss}
	}
	if err := l.metrics.evaluation(t.step, e); err != nil {
		return err
	}
	if l.o.OnEvaluation != nil {
		l.o.OnEvaluation(t.step, e)
	}
	return nil
}

// save saves what is not saved yet. Metrics that cannot be written are no
// reason to lose the rest.
func (l *loop) save() error {
	if l.dir == "" || l.saved == l.t.step {
		return nil
	}
	l.saved = l.t.step
	err := os.MkdirAll(l.dir, 0o777) // it may have been removed
	if err == nil {
		err = l.metrics.flush()
	}
	_, saveErr := l.t.Save(l.dir)
	return errors.Join(err, saveErr)
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
			t.options.Batch.Rows, batch, held, *total)
	}
	return nil
}

// batches prepares the micro-batches from where the training stands.
func (t *Trainer) batches(ctx context.Context, src data.Source, workers int) *data.Prefetcher {
	return data.Prefetch(ctx, src, t.step*t.options.Accumulate, data.PrefetchOptions{Workers: workers})
}
