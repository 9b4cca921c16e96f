package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/train"
)

// folder is where a run's files go. It is taken before any work is done for
// it, so that a path that cannot be written to is found at once, and so that no
// other run takes it.
type folder struct {
	path string
	// close gives the folder free, and removes it if it is new and empty still.
	close func()
}

// takeFolder takes the folder that out names, or without a name the first free
// one of a series. No result is overwritten without force.
func takeFolder(out, name string, force bool) (folder, error) {
	if out == "" {
		return nextFolder(name)
	}
	if err := shell.CheckFolder(out, force); err != nil {
		return folder{}, err
	}
	undo, err := makeFolder("output folder", out)
	if err != nil {
		return folder{}, err
	}
	lock, err := train.LockFolder(out, "report")
	if err != nil {
		undo()
		return folder{}, fmt.Errorf("output folder %w", err)
	}
	f := folder{out, func() { lock.Unlock(); undo() }}
	err = shell.CheckFolder(out, force) // whoever had it until now may have written
	if err == nil {
		err = removeUnfinished(out)
	}
	if err != nil {
		f.close()
		return folder{}, err
	}
	return f, nil
}

// nextFolder makes the first free folder of a series. Making it is what takes
// it: of two programs one gets it, and the other the next.
func nextFolder(name string) (folder, error) {
	undo, err := makeFolder("output folder", resultsFolder)
	if err != nil {
		return folder{}, err
	}
	for i := 1; ; i++ {
		path := filepath.Join(resultsFolder, fmt.Sprintf("%s-%03d", name, i))
		err := os.Mkdir(path, 0o777)
		if err == nil {
			return folder{path, func() { os.Remove(path); undo() }}, nil
		}
		if errors.Is(err, fs.ErrNotExist) { // another program took the series' folder away, empty
			err = os.MkdirAll(resultsFolder, 0o777)
			i--
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			undo()
			return folder{}, fmt.Errorf("output folder: %w", err)
		}
	}
}

// unfinished are the names of files that a run which was killed was writing.
var unfinished = regexp.MustCompile(`^\.[-.\w]+\.(json|html|pickle|svg|png)\.[0-9a-f]{8}$`)

// removeUnfinished removes what a run that was killed left in its folder.
func removeUnfinished(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("output folder: %w", err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() && unfinished.MatchString(e.Name()) {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("output folder: %w", err)
			}
		}
	}
	return nil
}

// earlierFiles are the files that the report in a folder says it has beside it.
func earlierFiles(dir string) []string {
	r, _, err := report.ReadFile(dir)
	if err != nil {
		return nil
	}
	return r.Files
}

// removeEarlier removes the files of the report that a new one replaced and
// that the new one does not have.
func removeEarlier(dir string, earlier, files []string) error {
	for _, name := range earlier {
		path := filepath.Join(dir, name)
		switch filepath.Ext(name) {
		case ".json", ".html", ".pickle", ".svg", ".png":
		default:
			continue
		}
		if info, err := os.Lstat(path); filepath.Base(name) != name || slices.Contains(files, path) || err != nil || !info.Mode().IsRegular() {
			continue
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("removing a file of the report before: %w", err)
		}
	}
	return nil
}

// makeFolder makes a folder and those above it before any work is done for it,
// so that a path that cannot be a folder is found at once. undo removes those
// that it made and that are empty still.
func makeFolder(flag, path string) (undo func(), err error) {
	var made []string // the deepest first
	for p := filepath.Clean(path); !shell.Exists(p); p = filepath.Dir(p) {
		made = append(made, p)
	}
	undo = func() {
		for _, p := range made {
			if os.Remove(p) != nil { // not empty
				return
			}
		}
	}
	if err := os.MkdirAll(path, 0o777); err != nil {
		undo()
		return nil, fmt.Errorf("%s %s: %w", flag, path, err)
	}
	// Of one name, so that what a kill leaves goes the next time.
	name := filepath.Join(path, ".tidemark-probe")
	probe, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		probe.Close()
	}
	if err == nil || errors.Is(err, os.ErrExist) {
		if err = os.Remove(name); errors.Is(err, os.ErrNotExist) { // another process was faster
			err = nil
		}
	}
	if err != nil {
		undo()
		return nil, fmt.Errorf("%s %s: nothing can be written there: %w", flag, path, err)
	}
	return undo, nil
}
