// Gocorpus writes a text of several megabytes to train on, made of the
// documentation of Go's standard library on this machine.
//
// Usage:
//
//	go run ./data/gocorpus [-force] [-goroot folder] file
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tidemark-lab/tidemark/data"
)

func main() {
	goroot := flag.String("goroot", "", "the Go installation to take the text from (default: what `go env GOROOT` prints)")
	force := flag.Bool("force", false, "replace the file if it is there")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: gocorpus [-force] [-goroot folder] file")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(1)
	}
	bytes, err := write(flag.Arg(0), *goroot, *force)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gocorpus:", err)
		os.Exit(1)
	}
	fmt.Printf("%s: %d bytes\n", flag.Arg(0), bytes)
}

// write makes the file whole or not at all.
func write(path, goroot string, force bool) (bytes int64, err error) {
	if _, err := os.Lstat(path); err == nil && !force {
		return 0, fmt.Errorf("%s is there already; -force replaces it", path)
	}
	if goroot == "" {
		out, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			return 0, fmt.Errorf("ask go for GOROOT (or give -goroot): %w", err)
		}
		goroot = strings.TrimSpace(string(out))
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	bytes, err = data.GoDocCorpus(file, goroot)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Chmod(file.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	return bytes, err
}
