package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// makeFolder makes a folder and those above it before any work is done for it,
// so that a path that cannot be a folder is found at once. undo removes those
// that it made and that are empty still.
func makeFolder(flag, path string) (undo func(), err error) {
	var made []string // the deepest first
	for p := filepath.Clean(path); !exists(p); p = filepath.Dir(p) {
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
	probe, err := os.CreateTemp(path, ".tidemark-*")
	if err != nil {
		undo()
		return nil, fmt.Errorf("%s %s: nothing can be written there: %w", flag, path, err)
	}
	probe.Close()
	os.Remove(probe.Name())
	return undo, nil
}
