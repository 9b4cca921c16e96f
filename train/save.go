package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tidemark-lab/tidemark/data/safetensors"
	"github.com/tidemark-lab/tidemark/device"
)

// A training is saved as a folder step-NNNNNNNN within the save folder, made
// under a temporary name and renamed, so that a save is there whole or not at
// all. It holds:
//
//	model.safetensors      weights under Hugging Face's names
//	config.json            the model
//	optimizer.safetensors  the optimizer's state, as PARAMETER/TENSOR
//	state.json             where the training stands, and all its settings
const (
	weightsFile   = "model.safetensors"
	configFile    = "config.json"
	optimizerFile = "optimizer.safetensors"
	stateFile     = "state.json"
	savePrefix    = "step-"
	asidePrefix   = savePrefix + "." // sorts before all digits: read last
	temporaryName = ".save-*"
	stateFormat   = 1
)

// state is the content of state.json.
type state struct {
	Format int `json:"format"`
	// Step is the number of steps done, which is also the data's position.
	Step int `json:"step"`
	// Passes counts forward passes, which number dropout's random draws.
	Passes         int64            `json:"passes"`
	OptimizerSteps map[string]int64 `json:"optimizer_steps"`
	Settings       Settings         `json:"settings"`
}

// Save writes where the training stands to a folder below dir and removes
// older saves there. It returns the folder's path.
func (t *Trainer) Save(dir string) (path string, err error) {
	path = filepath.Join(dir, fmt.Sprintf("%s%08d", savePrefix, t.step))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", fmt.Errorf("save: %w", err)
	}
	temporary, err := os.MkdirTemp(dir, temporaryName)
	if err != nil {
		return "", fmt.Errorf("save: %w", err)
	}
	defer os.RemoveAll(temporary)
	if err := t.write(temporary); err != nil {
		return "", fmt.Errorf("save %s: %w", path, err)
	}
	if err := os.Chmod(temporary, 0o755); err != nil {
		return "", fmt.Errorf("save: %w", err)
	}
	syncFolder(temporary)
	// An earlier save of the same step steps aside, still a save that can be
	// read, until the new one is in its place.
	if exists(path) {
		aside := filepath.Join(dir, asidePrefix+strings.TrimPrefix(filepath.Base(path), savePrefix))
		if err := os.RemoveAll(aside); err != nil {
			return "", fmt.Errorf("save: %w", err)
		}
		if err := os.Rename(path, aside); err != nil {
			return "", fmt.Errorf("save: %w", err)
		}
	}
	if err := os.Rename(temporary, path); err != nil {
		return "", fmt.Errorf("save: %w", err)
	}
	syncFolder(dir)
	if err := removeLeftovers(dir); err != nil {
		return path, err
	}
	saves, err := listSaves(dir)
	if err != nil {
		return path, err
	}
	for _, old := range saves {
		if old != filepath.Base(path) {
			if err := os.RemoveAll(filepath.Join(dir, old)); err != nil {
				return path, fmt.Errorf("removing an older save: %w", err)
			}
		}
	}
	return path, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// removeLeftovers removes what saves that were killed left unfinished.
func removeLeftovers(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("save: %w", err)
	}
	for _, e := range entries {
		if match, _ := filepath.Match(temporaryName, e.Name()); !match || !e.IsDir() {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("removing an unfinished save: %w", err)
		}
	}
	return nil
}

// syncFolder makes a rename last; where folders cannot be synchronised there
// is nothing to do about it.
func syncFolder(dir string) {
	if f, err := os.Open(dir); err == nil {
		f.Sync()
		f.Close()
	}
}

func (t *Trainer) write(dir string) error {
	st := state{Format: stateFormat, Step: t.step, Passes: t.session.Passes(), Settings: t.Settings,
		OptimizerSteps: make(map[string]int64)}
	var weights, moments []safetensors.Tensor
	for _, p := range t.session.Parameters() {
		weights = append(weights, t.stored(p.Name, p.Value))
	}
	for _, ps := range t.optimizer.State() {
		st.OptimizerSteps[ps.Parameter] = ps.Step
		for _, nt := range ps.Tensors {
			moments = append(moments, t.stored(ps.Parameter+"/"+nt.Name, nt.Tensor))
		}
	}
	metadata := map[string]string{"format": "pt"}
	if err := safetensors.Write(filepath.Join(dir, weightsFile), metadata, weights); err != nil {
		return err
	}
	if err := safetensors.Write(filepath.Join(dir, optimizerFile), nil, moments); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(dir, configFile), t.Settings.Model); err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, stateFile), st)
}

// stored is a tensor as safetensors writes it, read from the device when its
// turn comes.
func (t *Trainer) stored(name string, x device.Tensor) safetensors.Tensor {
	return safetensors.Tensor{Name: name, DType: safetensors.Of(x.DType), Shape: x.Shape,
		Write: func(w io.Writer) error {
			b := make([]byte, x.Bytes())
			if err := t.session.Device().Download(b, x); err != nil {
				return err
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

// listSaves lists the names of the saves in a folder, the newest last.
func listSaves(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var saves []string
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), savePrefix) {
			saves = append(saves, e.Name())
		}
	}
	slices.Sort(saves)
	return saves, nil
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
	for _, s := range slices.Backward(saves) {
		path := filepath.Join(dir, s)
		if IsSave(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s holds no saved training (no folder %s…)", dir, savePrefix)
}
