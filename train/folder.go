package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The names in a save folder. Everything else there is somebody else's and is
// neither changed nor removed.
var (
	saveNames      = regexp.MustCompile(`^step-(\.?)([0-9]{8,18})$`) // with a dot: stepped aside
	temporaryNames = regexp.MustCompile(`^\.save-[0-9]+$`)
	metricsNames   = regexp.MustCompile(`^\.metrics-[0-9]+$`)
	memberNames    = regexp.MustCompile(`^\.(model|optimizer|adapter_model)\.safetensors\.[0-9a-f]{8}\.tmp$`) // in a save that is being written
)

// saveFiles are the files of a save; the first makes a folder one.
var saveFiles = []string{stateFile, weightsFile, configFile, optimizerFile, adapterFile, adapterConfigFile}

// SaveFolder is a folder that a training is saved to, one process at a time.
type SaveFolder struct {
	dir  string
	lock *FolderLock
}

// OpenSaveFolder makes the folder if need be, locks it, finds what would be in
// the way of a save, and removes what saves that were killed left unfinished.
func OpenSaveFolder(dir string) (*SaveFolder, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("save folder: %w", err)
	}
	lock, err := LockFolder(dir, "save")
	if err != nil {
		return nil, fmt.Errorf("save folder %w", err)
	}
	f := &SaveFolder{dir, lock}
	if err = checkMetrics(filepath.Join(dir, MetricsFile)); err == nil {
		err = f.check(newest(dir))
	}
	if err == nil {
		err = f.removeLeftovers()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("save folder %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// Close lets other processes save there.
func (f *SaveFolder) Close() error { return f.lock.Unlock() }

// newest is the number of steps of the newest save in a folder; -1 without one.
func newest(dir string) int {
	path, err := latest(dir)
	if err != nil {
		return -1
	}
	step, _, _ := parseSave(filepath.Base(path))
	return step
}

// check refuses a folder in which somebody else's files have the name of a save
// that is to come, after a number of steps.
func (f *SaveFolder) check(after int) error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if n, aside, ok := parseSave(e.Name()); ok && !aside && n > after && !ownSave(f.dir, e.Name()) {
			return fmt.Errorf("%s has the name of a save and is none (its %s is not one of tidemark's): move it away, or save elsewhere", e.Name(), stateFile)
		}
	}
	return nil
}

// saveName is the name of a save of so many steps.
func saveName(step int) string { return fmt.Sprintf("step-%08d", step) }

// parseSave reads the name of a save.
func parseSave(name string) (step int, aside, ok bool) {
	m := saveNames.FindStringSubmatch(name)
	if m == nil {
		return 0, false, false
	}
	step, err := strconv.Atoi(m[2])
	return step, m[1] != "", err == nil
}

// listSaves lists the names of what look like saves in a folder, the newest
// last; those that stepped aside for another come before all others.
func listSaves(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var saves []string
	for _, e := range entries {
		if _, _, ok := parseSave(e.Name()); ok && e.IsDir() && IsSave(filepath.Join(dir, e.Name())) {
			saves = append(saves, e.Name())
		}
	}
	slices.SortFunc(saves, func(a, b string) int {
		i, asideI, _ := parseSave(a)
		j, asideJ, _ := parseSave(b)
		switch {
		case asideI != asideJ && asideI:
			return -1
		case asideI != asideJ:
			return 1
		case i != j:
			return i - j
		}
		return strings.Compare(a, b)
	})
	return saves, nil
}

// ownSave reports whether a folder is a save that this program wrote: its name
// and its state.json agree.
func ownSave(dir, name string) bool {
	step, _, ok := parseSave(name)
	if !ok {
		return false
	}
	info, err := os.Lstat(filepath.Join(dir, name))
	if err != nil || !info.IsDir() {
		return false
	}
	file, err := os.Open(filepath.Join(dir, name, stateFile))
	if err != nil {
		return false
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxStateBytes))
	var st struct {
		Format   *int                       `json:"format"`
		Step     *int                       `json:"step"`
		Settings map[string]json.RawMessage `json:"settings"`
		Module   string                     `json:"module"`
	}
	if err != nil || json.Unmarshal(b, &st) != nil {
		return false
	}
	return st.Format != nil && st.Step != nil && *st.Step == step && (st.Settings["model"] != nil || st.Module != "")
}

// ours reports whether a folder holds nothing but files of a save.
func ours(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return !e.Type().IsRegular() || !slices.Contains(saveFiles, e.Name()) && !memberNames.MatchString(e.Name())
	})
}

// aside moves saves that are as new as a step, or newer, out of the way of the
// one that is to replace them. They stay readable until it is there.
func (f *SaveFolder) aside(step int) error {
	saves, err := listSaves(f.dir)
	if err != nil {
		return err
	}
	for _, name := range saves {
		n, is, _ := parseSave(name)
		if is || n < step || !ownSave(f.dir, name) || n != step && !ours(filepath.Join(f.dir, name)) {
			continue
		}
		to := fmt.Sprintf("step-.%08d", n)
		if err := f.remove(to); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(f.dir, name), filepath.Join(f.dir, to)); err != nil {
			return err
		}
	}
	return nil
}

// removeOthers removes all saves but one, and what was left unfinished.
func (f *SaveFolder) removeOthers(keep string) error {
	saves, err := listSaves(f.dir)
	if err != nil {
		return err
	}
	for _, name := range saves {
		if name != keep && ownSave(f.dir, name) {
			if err := f.remove(name); err != nil {
				return err
			}
		}
	}
	return f.removeLeftovers()
}

// remove removes a save. It ends to be one at once; files in it that are not
// ours stay.
func (f *SaveFolder) remove(name string) error {
	path := filepath.Join(f.dir, name)
	if !exists(path) {
		return nil
	}
	if ours(path) {
		temporary := filepath.Join(f.dir, fmt.Sprintf(".save-%d", rand.Uint64()))
		if err := os.Rename(path, temporary); err != nil {
			return err
		}
		return os.RemoveAll(temporary)
	}
	for _, file := range saveFiles {
		if err := os.Remove(filepath.Join(path, file)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// removeLeftovers removes what saves that were killed left unfinished.
func (f *SaveFolder) removeLeftovers() error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(f.dir, e.Name())
		switch {
		case e.Type().IsRegular() && metricsNames.MatchString(e.Name()):
			err = os.Remove(path)
		case e.IsDir() && temporaryNames.MatchString(e.Name()) && ours(path):
			err = os.RemoveAll(path)
		}
		if err != nil {
			return fmt.Errorf("removing an unfinished save: %w", err)
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// syncFolder makes a rename last; where folders cannot be synchronised there
// is nothing to do about it.
func syncFolder(dir string) {
	if f, err := os.Open(dir); err == nil {
		f.Sync()
		f.Close()
	}
}
