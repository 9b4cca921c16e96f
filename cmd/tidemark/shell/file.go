package shell

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/report/page"
)

// The names of a run's first snapshot and of its picture, without the ending.
const (
	SnapshotName = "snapshot.pickle"
	TimelineName = "timeline"
	// ActivationsName is that of what counts activations, without the ending.
	ActivationsName = "activations"
)

// CheckFolder refuses a folder that holds a report already, or a file of one,
// before anything is run for it.
func CheckFolder(path string, force bool) error {
	if force {
		return nil
	}
	if Exists(filepath.Join(path, report.FileName)) {
		return fmt.Errorf("%s already holds a report; name another folder, or --force to replace it", path)
	}
	for _, name := range []string{SnapshotName, TimelineName + ".svg", TimelineName + ".png", page.FileName, ActivationsName + ".json"} {
		if Exists(filepath.Join(path, name)) {
			return fmt.Errorf("%s already holds a %s; name another folder, or --force to replace it", path, name)
		}
	}
	return nil
}

// Exists reports whether there is something at path.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// PrintJSON writes a value for programs.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
