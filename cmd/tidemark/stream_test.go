//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/train"
)

// TestFullDevice has every command print to a device without room.
func TestFullDevice(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	dir := longWorkFolder(t)
	snapshot := filepath.Join(dir, "report", "snapshot.pickle")
	for _, args := range []string{
		"", "--help", "help", "list", "version", "train --help",
		"run linear --device meta", "run linear --device meta --json", "run --all --device meta --limit-bytes 1000000", "run --all --device meta --limit-bytes 1000000 --json",
		"activations --preset gpt-char", "activations --preset gpt-char --json --out activations",
		"estimate --preset gpt-char", "estimate --preset gpt-char --json", "estimate --parameters 7000000000",
		"train --preset gpt-char --device meta", "train --preset gpt-char --device meta --json",
		"generate --from saved --prompt a --tokens 2", "generate --from saved --prompt a --tokens 2 --json",
		"eval --from saved --batches 1", "eval --from saved --batches 1 --json",
		"compare report report", "compare report report --json",
		"snapshot stat " + snapshot, "snapshot stat --json " + snapshot,
		"snapshot replay " + snapshot, "snapshot replay --check --json " + snapshot,
	} {
		c := process(t, dir, strings.Fields(args)...)
		var stderr bytes.Buffer
		c.Stdout, c.Stderr = full, &stderr
		code := status(c.Run())
		lines := strings.Split(strings.TrimSuffix(stderr.String(), "\n"), "\n")
		if last := lines[len(lines)-1]; code != shell.ExitError || !strings.Contains(last, "no space left") {
			t.Errorf("%s: status %d, %q; want %d and why", args, code, stderr.String(), shell.ExitError)
		}
	}
	if !shell.Exists(filepath.Join(dir, "activations", "activations.json")) {
		t.Error("what was to be written besides is not there")
	}
}

// TestBrokenPipe leaves after the first line, as head -1 does: what is to be
// saved is saved, and the status tells that not all was read.
func TestBrokenPipe(t *testing.T) {
	dir := t.TempDir()
	c := process(t, dir, strings.Fields("train --preset gpt-char --layers 1 --width 32 --heads 2 --seq 16 --device cpu --steps 30 --save saved --out report")...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	stdout.Close()
	if code := status(c.Wait()); code != shell.ExitError || !strings.Contains(stderr.String(), "broken pipe") {
		t.Errorf("status %d, %q", code, stderr.String())
	}
	if !train.HasSave(filepath.Join(dir, "saved")) || !shell.Exists(filepath.Join(dir, "report", "report.json")) {
		t.Errorf("nothing was saved: %s", stderr.String())
	}
}

// TestPanicIsAnError has the program meet a fault of its own.
func TestPanicIsAnError(t *testing.T) {
	var stderr bytes.Buffer
	code := run(context.Background(), []string{"tidemark", "version"}, panicking{}, &stderr)
	if code != shell.ExitError || strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), "a fault of tidemark's own: no room") {
		t.Errorf("status %d, %q", code, stderr.String())
	}
}

type panicking struct{}

func (panicking) Write([]byte) (int, error) { panic("no room") }
