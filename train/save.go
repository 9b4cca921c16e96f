package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/tidemark-lab/tidemark/data/safetensors"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/models"
)

// A training is saved as a folder step-NNNNNNNN within the save folder, made
// under a temporary name and renamed, so that a save is there whole or not at
// all. It holds:
//
//	model.safetensors      weights under Hugging Face's names
//	config.json            the model, unless it is one of one's own
//	adapter_model.safetensors, adapter_config.json  instead of these two, adapters
//	optimizer.safetensors  the optimizer's state, as PARAMETER/TENSOR
//	state.json             where the training stands, and all its settings or, of
//	                       a model of one's own, its type
const (
	weightsFile   = "model.safetensors"
	configFile    = "config.json"
	optimizerFile = "optimizer.safetensors"
	stateFile     = "state.json"
	stateFormat   = 1
)

// state is the content of state.json.
type state struct {
	Format int `json:"format"`
	// Step is the number of steps done, which is also the data's position.
	Step int `json:"step"`
	// Passes counts the forward passes that drew at random, which numbers
	// dropout's draws.
	Passes         int64            `json:"passes"`
	OptimizerSteps map[string]int64 `json:"optimizer_steps"`
	// Settings are nil for a model of one's own, of which there is the type.
	Settings *Settings `json:"settings,omitempty"`
	Module   string    `json:"module,omitempty"`
}

// own says that the model is one that no settings describe.
func (t *Trainer) own() bool { return t.Settings.Model.Type() == "" }

// Save writes where the training stands, which is after the last whole step,
// to a folder below dir and removes older saves there. It returns the folder's
// path. A training that has diverged is not saved (DivergedError), nor one
// whose last step failed half way: the last good save stays.
func (t *Trainer) Save(dir string) (path string, err error) {
	if t.torn != nil {
		return "", fmt.Errorf("save: %w", t.torn)
	}
	f := t.folder
	if f == nil || f.dir != dir {
		if f, err = OpenSaveFolder(dir); err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
	}
	path = filepath.Join(dir, saveName(t.step))
	if err := t.saveTo(f, path); err != nil {
		return "", fmt.Errorf("save %s: %w", path, err)
	}
	if err := f.removeOthers(filepath.Base(path)); err != nil {
		return path, fmt.Errorf("removing older saves from %s: %w", dir, err)
	}
	return path, nil
}

func (t *Trainer) saveTo(f *SaveFolder, path string) error {
	// The folder may have been removed while the training ran.
	if err := os.MkdirAll(f.dir, 0o777); err != nil {
		return err
	}
	if err := f.lock.Keep(); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(f.dir, ".save-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	if err := t.write(temporary); err != nil {
		return err
	}
	if err := os.Chmod(temporary, 0o755); err != nil {
		return err
	}
	syncFolder(temporary)
	if err := f.aside(t.step); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	syncFolder(f.dir)
	return nil
}

func (t *Trainer) write(dir string) error {
	st := state{Format: stateFormat, Step: t.step, Passes: t.session.Passes(), OptimizerSteps: make(map[string]int64)}
	if st.Settings = &t.Settings; t.own() {
		st.Settings, st.Module = nil, t.model.Type()
	}
	var weights, moments []safetensors.Tensor
	for _, p := range t.session.Parameters() {
		weights = append(weights, t.stored(p.Name, p.Value, false))
	}
	adapted := t.Settings.LoRA != nil
	for _, ps := range t.optimizer.State() {
		st.OptimizerSteps[ps.Parameter] = ps.Step
		for _, nt := range ps.Tensors {
			moments = append(moments, t.stored(ps.Parameter+"/"+nt.Name, nt.Tensor, true))
		}
	}
	if adapted {
		if err := t.writeAdapters(dir); err != nil {
			return err
		}
	} else if err := safetensors.Write(filepath.Join(dir, weightsFile), map[string]string{"format": "pt"}, weights); err != nil {
		return err
	}
	if err := safetensors.Write(filepath.Join(dir, optimizerFile), nil, moments); err != nil {
		return err
	}
	if !t.own() && !adapted {
		if err := writeJSON(filepath.Join(dir, configFile), t.savedConfig()); err != nil {
			return err
		}
	}
	return writeJSON(filepath.Join(dir, stateFile), st)
}

// savedConfig is the model's config with the element type that weights are saved
// in.
func (t *Trainer) savedConfig() models.Config {
	config := t.Settings.Model
	if key, _ := config.Precision(); key != "" { // that of the file was the weights' then
		config = config.With(map[string]any{key: t.Settings.DType})
	}
	return config
}

// stored is a tensor as safetensors writes it, read from the device when its
// turn comes, and looked at: weights are finite and an optimizer's state, which
// may be infinite, is a number.
func (t *Trainer) stored(name string, x device.Tensor, infinities bool) safetensors.Tensor {
	return safetensors.Tensor{Name: name, DType: safetensors.Of(x.DType), Shape: x.Shape,
		Write: func(w io.Writer) error {
			b := make([]byte, x.Bytes())
			if err := t.session.Device().Download(b, x); err != nil {
				return err
			}
			if v, bad := nonFinite(x.DType, b, infinities); bad {
				return &DivergedError{Step: t.step, What: "a value of " + name, Value: v}
			}
			_, err := w.Write(b)
			return err
		}}
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

// HasSave reports whether a folder holds a saved training.
func HasSave(dir string) bool {
	_, err := latest(dir)
	return err == nil
}

// IsSave reports whether a folder is itself one save of a training, rather
// than the folder that a training is saved to.
func IsSave(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, stateFile))
	return err == nil
}

// latest is the newest save in a folder, or the folder itself if it is one.
func latest(dir string) (string, error) {
	if IsSave(dir) {
		return dir, nil
	}
	saves, err := listSaves(dir)
	if err != nil {
		return "", fmt.Errorf("no saved training: %w", err)
	}
	if len(saves) == 0 {
		return "", fmt.Errorf("%s holds no saved training (no folder step-…)", dir)
	}
	return filepath.Join(dir, saves[len(saves)-1]), nil
}
