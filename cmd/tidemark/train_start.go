package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/session"
)

// training is a training that the command line started.
type training struct {
	dev       chosen
	trainer   *train.Trainer
	recorder  *instrument.Recorder
	sources   train.Sources
	dir       folder
	save      string
	folder    *train.SaveFolder // save, opened
	reported  train.StepStats
	evaluated *train.Evaluation
	closers   []func()
}

// close gives back what the training took, the last first.
func (j *training) close() {
	for _, f := range slices.Backward(j.closers) {
		f()
	}
	j.closers = nil
}

func newTraining(c *cli.Context, dev chosen) (_ *training, err error) {
	j := &training{dev: dev, save: cmp.Or(c.String("resume"), c.String("save"))}
	defer func() {
		if err != nil {
			j.close()
		}
	}()
	settings, err := j.chooseSettings(c)
	if err != nil {
		return nil, err
	}
	if j.dir, err = takeFolder(c.String("out"), "train", c.Bool("force")); err != nil {
		return nil, err
	}
	j.closers = append(j.closers, undoing(c.Context, j.dir.close))
	if dev.Computes || settings.Data.Kind == "text" {
		if j.sources, err = openSources(c, &settings); err != nil {
			return nil, err
		}
	}
	d, err := dev.open()
	if err != nil {
		return nil, err
	}
	j.closers = append(j.closers, func() { d.Close() })
	j.recorder = instrument.New(instrument.Options{NoTiming: !dev.Computes})
	j.recorder.Attach(d.Allocator())
	o := train.TrainerOptions{Session: session.Options{WorkspaceBytes: workspaceBytes(c, dev.Row), Interrupted: c.Context.Err}}
	if resume := c.String("resume"); resume != "" {
		j.trainer, err = train.Resume(d, j.recorder, resume, func(s *train.Settings) {
			if c.IsSet("steps") {
				s.Steps = c.Int("steps")
			}
			s.Data = settings.Data
		}, o)
	} else {
		j.trainer, err = train.FromSettings(d, j.recorder, settings, o)
	}
	if err != nil {
		return nil, err
	}
	j.closers = append(j.closers, j.trainer.Close)
	if from := c.String("from"); from != "" {
		if err := j.trainer.LoadFolder(from); err != nil {
			return nil, fmt.Errorf("--from: %w", err)
		}
		if j.trainer.Settings.LoRA != nil {
			base, err := train.ModelFolder(from)
			if err != nil {
				return nil, fmt.Errorf("--from: %w", err)
			}
			if j.trainer.Settings.Base, err = filepath.Abs(base); err != nil {
				return nil, err
			}
		}
	}
	if done, steps := j.trainer.Steps(), j.trainer.Settings.Steps; done >= steps {
		return nil, fmt.Errorf("--resume %s: its %d steps are done; name more with --steps", j.save, done)
	}
	return j, nil
}

// chooseSettings gives those of the saved training that goes on, or those that the
// flags give a new one. The folder that it is saved to is opened before either.
func (j *training) chooseSettings(c *cli.Context) (train.Settings, error) {
	if c.String("resume") != "" {
		return j.resumed(c)
	}
	settings, err := settingsOf(c)
	if err != nil {
		return settings, err
	}
	settings.Precision = j.dev.precision
	if err := settings.Validate(); err != nil {
		return settings, err
	}
	if j.save == "" {
		return settings, nil
	}
	if err := j.openSave(c, "--save"); err != nil {
		return settings, err
	}
	if train.HasSave(j.save) && !c.Bool("force") {
		return settings, fmt.Errorf("--save %s: it holds a saved training; --resume it, name another folder, or --force to replace it", j.save)
	}
	return settings, nil
}

func (j *training) resumed(c *cli.Context) (train.Settings, error) {
	var settings train.Settings
	if save := c.String("save"); save != "" && save != j.save {
		return settings, errors.New("--save and --resume: a resumed training is saved where it was; leave --save out")
	}
	if err := checkResume(c); err != nil {
		return settings, err
	}
	if !train.HasSave(j.save) { // before anything is made there
		return train.ReadSettings(j.save)
	}
	if err := j.openSave(c, "--resume"); err != nil {
		return settings, err
	}
	settings, err := train.ReadSettings(j.save)
	if err != nil {
		return settings, err
	}
	if err := j.ownPrecision(c, &settings); err != nil {
		return settings, err
	}
	return settings, movedText(c, &settings)
}

// ownPrecision has a saved training go on in its own precision. How products of
// float32 matrices are rounded changes nothing that was saved: it can be chosen
// anew.
func (j *training) ownPrecision(c *cli.Context, s *train.Settings) error {
	saved := s.Precision.OrDefault()
	if c.IsSet("precision") {
		if saved.Storage() != j.dev.precision.Storage() {
			return fmt.Errorf("--resume: the saved training goes on in its own precision, %s; leave --precision out", saved)
		}
		s.Precision = j.dev.precision
		return nil
	}
	if saved.Products() == precision.Exact {
		return nil
	}
	if err := c.Set("precision", string(saved)); err != nil {
		return err
	}
	dev, err := chooseDevice(c)
	if err != nil {
		return fmt.Errorf("--resume: the saved training is in %s: %w (--precision %s goes on without it)", saved, err, precision.FP32)
	}
	j.dev = dev
	return nil
}

// openSave takes the folder that the training is saved to.
func (j *training) openSave(c *cli.Context, flag string) error {
	undo, err := makeFolder(flag, j.save)
	if err != nil {
		return err
	}
	j.closers = append(j.closers, undoing(c.Context, undo))
	if j.folder, err = train.OpenSaveFolder(j.save); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	j.closers = append(j.closers, func() { j.folder.Close() })
	return nil
}

// openSources opens the data, and fits a preset's vocabulary to a new text.
func openSources(c *cli.Context, s *train.Settings) (train.Sources, error) {
	if s.Data.Kind != "text" {
		return s.OpenSources(nil)
	}
	fits, most := s.Data.Vocabulary == nil && fitsVocabulary(c, s), 0
	if !fits {
		var err error
		if _, most, _, err = models.Sizes(s.Model); err != nil {
			return train.Sources{}, err
		}
	}
	text, err := s.LoadText(c.Context, most)
	if err != nil {
		return train.Sources{}, err
	}
	if fits {
		s.Model = s.Model.With(map[string]any{"vocab_size": text.Vocabulary.Size()})
	}
	return s.OpenSources(text)
}
