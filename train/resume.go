package train

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/tidemark-lab/tidemark/data/safetensors"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
)

// ReadSettings reads the settings of the newest save in a folder.
func ReadSettings(dir string) (Settings, error) {
	_, st, err := readState(dir)
	return st.Settings, err
}

// maxStateBytes bounds state.json: a vocabulary and a number for each parameter.
const maxStateBytes = 64 << 20

func readState(dir string) (path string, st state, err error) {
	if path, err = latest(dir); err != nil {
		return "", st, err
	}
	file := filepath.Join(path, stateFile)
	f, err := os.Open(file)
	if err != nil {
		return path, st, fmt.Errorf("saved training: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxStateBytes+1))
	if err != nil {
		return path, st, fmt.Errorf("saved training: %w", err)
	}
	if len(b) > maxStateBytes {
		return path, st, fmt.Errorf("saved training %s: it has more than %d bytes", file, maxStateBytes)
	}
	if err := json.Unmarshal(b, &st); err != nil {
		return path, st, fmt.Errorf("saved training %s: %w", file, err)
	}
	if st.Format != stateFormat {
		return path, st, fmt.Errorf("saved training %s has format %d, this program reads %d", file, st.Format, stateFormat)
	}
	if st.Step < 0 {
		return path, st, fmt.Errorf("saved training %s: step %d is negative", file, st.Step)
	}
	return path, st, nil
}

// Resume continues the newest training saved in a folder, exactly as if it had
// never stopped. change may alter settings that do not touch what was computed
// so far, such as the number of steps; it may be nil.
func Resume(dev device.Device, recorder *instrument.Recorder, dir string, change func(*Settings), o TrainerOptions) (*Trainer, error) {
	path, st, err := readState(dir)
	if err != nil {
		return nil, err
	}
	if change != nil {
		change(&st.Settings)
	}
	t, err := NewTrainer(dev, recorder, st.Settings, o)
	if err != nil {
		return nil, fmt.Errorf("saved training %s: %w", path, err)
	}
	t.weights = o.WeightsOnly
	if err := t.restore(path, st); err != nil {
		t.Close()
		return nil, fmt.Errorf("saved training %s: %w", path, err)
	}
	return t, nil
}

func (t *Trainer) restore(path string, st state) error {
	if err := t.LoadWeights(filepath.Join(path, weightsFile)); err != nil {
		return err
	}
	if t.weights {
		t.step = st.Step
		t.session.SetPasses(st.Passes)
		return nil
	}
	f, err := safetensors.Open(filepath.Join(path, optimizerFile))
	if err != nil {
		return err
	}
	defer f.Close()
	err = t.optimizer.Restore(t.session.OptimizerMemory(), t.session.AllParameters(), st.OptimizerSteps,
		func(parameter, name string, x device.Tensor) error { return t.load(f, parameter+"/"+name, x) })
	if err != nil {
		return err
	}
	t.step = st.Step
	t.session.SetPasses(st.Passes)
	return nil
}

// LoadWeights reads all of the model's weights from a safetensors file.
func (t *Trainer) LoadWeights(file string) error {
	f, err := safetensors.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range t.session.Parameters() {
		if err := t.load(f, p.Name, p.Value); err != nil {
			return err
		}
	}
	return nil
}

// load reads one tensor of a file into device memory.
func (t *Trainer) load(f *safetensors.File, name string, x device.Tensor) error {
	info, err := f.Info(name)
	if err != nil {
		return err
	}
	if !slices.Equal(info.Shape, x.Shape) {
		return fmt.Errorf("%s: %s has shape %v, the model's %v", f.Path(), name, info.Shape, x.Shape)
	}
	b := make([]byte, x.Bytes())
	if err := f.ReadAs(name, x.DType, b); err != nil {
		return err
	}
	return t.session.Device().Upload(x, b)
}
