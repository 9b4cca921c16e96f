package report

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// FileName is the name of the report in a run's folder.
const FileName = "report.json"

// Prepare makes a folder for the files of a run. It fails when the folder
// already holds a report, unless force is set, and when dir is a file.
func Prepare(dir string, force bool) error {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return fmt.Errorf("output folder %s: is a file", dir)
	}
	if _, err := os.Lstat(filepath.Join(dir, FileName)); err == nil && !force {
		return fmt.Errorf("output folder %s already holds a %s: choose another, or pass --force to overwrite it", dir, FileName)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("output folder: %w", err)
	}
	return nil
}

// WriteFile has write produce the file at path. The file appears whole or not
// at all: it is written under a temporary name in the same folder and renamed.
// A file that exists is only replaced when force is set.
func WriteFile(path string, force bool, write func(io.Writer) error) (err error) {
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("write %s: is a folder", path)
	case err == nil && !force:
		return existsError(path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("write %s: %w", path, err)
	}
	// Not os.CreateTemp, whose files only their owner may read.
	temporary := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%08x", filepath.Base(path), rand.Uint32()))
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		f.Close()
		os.Remove(temporary)
	}()
	buffered := bufio.NewWriterSize(f, 1<<16)
	for _, step := range []func() error{
		func() error { return write(buffered) }, buffered.Flush, f.Sync, f.Close} {
		if err := step(); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	if !force {
		// A link, unlike a rename, fails if another program has made the file
		// meanwhile. Not all file systems have links.
		err := os.Link(temporary, path)
		if err == nil {
			return nil
		}
		if errors.Is(err, fs.ErrExist) {
			return existsError(path)
		}
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func existsError(path string) error {
	return fmt.Errorf("%s exists: pass --force to overwrite it", path)
}
