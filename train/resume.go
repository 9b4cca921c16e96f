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
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
)

// ReadSettings reads the settings of the newest save in a folder.
func ReadSettings(dir string) (Settings, error) {
	path, st, err := readState(dir)
	if err == nil {
		err = st.described(path)
	}
	if err != nil {
		return Settings{}, err
	}
	return *st.Settings, nil
}

// described refuses the save of a model that no settings describe.
func (st *state) described(path string) error {
	if st.Settings == nil {
		return fmt.Errorf("saved training %s is of a model of its program's own, of type %s: that program continues it (NewTrainer, then Restore)", path, st.Module)
	}
	return nil
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
	if (st.Settings == nil) == (st.Module == "") {
		return path, st, fmt.Errorf("saved training %s: it has settings, or the module of a model without", file)
	}
	if st.Step < 0 || st.Passes < 0 {
		return path, st, fmt.Errorf("saved training %s: step %d or passes %d is negative", file, st.Step, st.Passes)
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
	if err := st.described(path); err != nil {
		return nil, err
	}
	if change != nil {
		change(st.Settings)
	}
	t, err := FromSettings(dev, recorder, *st.Settings, o)
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

// Restore continues the newest training saved in a folder, of the same model and
// optimizer, exactly as if it had never stopped. A trainer whose Restore fails is
// of no more use.
func (t *Trainer) Restore(dir string) error {
	path, st, err := readState(dir)
	if err != nil {
		return err
	}
	if is := t.model.Type(); st.Module != "" && st.Module != is {
		return fmt.Errorf("saved training %s is of a model of type %s, not %s", path, st.Module, is)
	}
	t.weights = t.options.WeightsOnly
	if err := t.restore(path, st); err != nil {
		return fmt.Errorf("saved training %s: %w", path, err)
	}
	return nil
}

func (t *Trainer) restore(path string, st state) error {
	if err := t.readSaved(path); err != nil {
		return err
	}
	if t.weights {
		t.step = st.Step
		t.session.SetPasses(st.Passes)
		return nil
	}
	if err := t.checkOptimizerSteps(st); err != nil {
		return err
	}
	f, err := safetensors.Open(filepath.Join(path, optimizerFile))
	if err != nil {
		return err
	}
	defer f.Close()
	var taken []string
	err = t.optimizer.Restore(t.session.OptimizerMemory(), t.session.AllParameters(), st.OptimizerSteps,
		func(parameter, name string, x device.Tensor) error {
			name = parameter + "/" + name
			taken = append(taken, name)
			return t.load(f, name, x, true)
		})
	if err == nil {
		err = nothingLeft(f, taken)
	}
	if err != nil {
		return err
	}
	t.step = st.Step
	t.session.SetPasses(st.Passes)
	return nil
}

// checkOptimizerSteps refuses a save that lost what its optimizer did: after a
// step every parameter with a gradient has been updated, and none more often
// than there were steps.
func (t *Trainer) checkOptimizerSteps(st state) error {
	if st.Step > 0 {
		for _, p := range t.plan.Parameters {
			if p.Model.Frozen {
				continue
			}
			name := t.session.Parameter(p.Model).Name
			if _, ok := st.OptimizerSteps[name]; !ok {
				return fmt.Errorf("%s: optimizer_steps does not say how often %s was updated, after %d steps", stateFile, name, st.Step)
			}
		}
	}
	for name, n := range st.OptimizerSteps {
		if n < 1 || n > int64(st.Step) {
			return fmt.Errorf("%s: optimizer_steps says that %s was updated %d times in %d steps", stateFile, name, n, st.Step)
		}
	}
	return nil
}

// tensors are those of a file, or of a model's folder.
type tensors interface {
	Path() string
	Names() []string
	Has(name string) bool
	Info(name string) (safetensors.Info, error)
	ReadAs(name string, dtype device.DType, dst []byte) error
}

// nothingLeft refuses a file with tensors that nobody took.
func nothingLeft(f tensors, taken []string) error {
	names := slices.DeleteFunc(f.Names(), func(name string) bool { return slices.Contains(taken, name) })
	if len(names) > 0 {
		return fmt.Errorf("%s: %d tensors are none of the model's, such as %q", f.Path(), len(names), names[0])
	}
	return nil
}

// LoadWeights reads all of the model's weights from a safetensors file, which
// holds nothing else but constants that the model makes itself.
func (t *Trainer) LoadWeights(file string) error {
	f, err := safetensors.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return t.loadWeights(f)
}

// LoadFolder is LoadWeights with a ModelFolder, whose weights may lie in several
// shards. Where nothing is computed it compares names and shapes.
func (t *Trainer) LoadFolder(dir string) error {
	path, err := ModelFolder(dir)
	if err != nil {
		return err
	}
	f, err := safetensors.OpenFolder(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return t.loadWeights(f)
}

func (t *Trainer) loadWeights(f tensors) error {
	var taken []string
	for _, p := range t.session.Parameters() {
		if _, adapter := nn.AdapterName(p.Name); adapter {
			continue // which begins anew
		}
		name := models.WeightIn(t.model, nn.BaseName(p.Name), f.Has)
		taken = append(taken, name)
		if err := t.load(f, name, p.Value, false); err != nil {
			return err
		}
	}
	for _, name := range f.Names() {
		if models.NoWeight(t.model, name) {
			taken = append(taken, name)
		}
	}
	return nothingLeft(f, taken)
}

// load reads one tensor of a file into device memory. Its values are numbers,
// and finite unless infinities are allowed.
func (t *Trainer) load(f tensors, name string, x device.Tensor, infinities bool) error {
	info, err := f.Info(name)
	if err != nil {
		return err
	}
	if !slices.Equal(info.Shape, x.Shape) {
		return fmt.Errorf("%s: %s has shape %v, the model's %v", f.Path(), name, info.Shape, x.Shape)
	}
	if !t.computes() {
		return nil
	}
	b := make([]byte, x.Bytes())
	if err := f.ReadAs(name, x.DType, b); err != nil {
		return err
	}
	if v, bad := nonFinite(x.DType, b, infinities); bad {
		return fmt.Errorf("%s: a value of %s is %v: the training had diverged", f.Path(), name, v)
	}
	return t.session.Device().Upload(x, b)
}
