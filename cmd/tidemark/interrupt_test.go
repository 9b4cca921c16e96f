//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
)

// asProgram has the test's binary be the program itself.
const asProgram = "TIDEMARK_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// process is the program as a process of its own in a folder.
func process(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, os.Args[0], args...)
	c.Dir = dir
	c.Env = append(os.Environ(), asProgram+"=1")
	return c
}

// status is how a process ended; that of one ended by a signal is -1.
func status(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -2
}

// Within a second is what is promised; the rest is for a machine that does much
// else while it tests.
const stopsWithin = time.Second + 2*time.Second

// longWork is commands that would take much longer than a test has, on
// what lies in the folder that longWorkFolder makes.
var longWork = map[string]string{
	"estimate of a pipe":         "estimate --config pipe",
	"activations of a pipe":      "activations --config pipe",
	"training on a pipe":         "train --preset gpt-char --device cpu --data pipe",
	"training of a pipe":         "train --config pipe --device cpu",
	"evaluation of a pipe":       "eval --from saved --data pipe",
	"snapshot stat of a pipe":    "snapshot stat pipe",
	"snapshot replay of a pipe":  "snapshot replay pipe",
	"snapshot explain of a pipe": "snapshot explain pipe",
	"snapshot diff of a pipe":    "snapshot diff pipe pipe",
	"snapshot convert of a pipe": "snapshot convert --out converted pipe",
	"scenario of a pipe":         "run peak-shift --device meta --config pipe",
	"estimate":                   "estimate --preset qwen2.5-1.5b --steps 1000 --accumulate 100",
	"activations":                "activations --preset qwen2.5-1.5b --layers 400 --json",
	"training":                   "train --preset gpt-char --device cpu --steps 1000000",
	"training of a large model":  "train --preset gpt2 --device cpu --steps 1000000",
	"evaluation":                 "eval --from saved --data large.txt",
	"generation":                 "generate --from saved --prompt a --tokens 100000000",
	"table of a scenario":        "run peak-shift --device meta --table 1024",
	"scenario":                   "run optimizers --device cpu --steps 1000",
	"all scenarios":              "run --all --device cpu",
}

func longWorkFolder(t *testing.T) string {
	dir := t.TempDir()
	text := strings.Repeat("all work and no play makes a dull boy. ", 250)
	for name, s := range map[string]string{"text.txt": text, "large.txt": strings.Repeat(text, 2000)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(s), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	train := "train --preset gpt-char --layers 1 --width 32 --heads 2 --seq 16 --batch 1 --device cpu --steps 1 --eval-every 0 --data text.txt --save saved --out report"
	if out, err := process(t, dir, strings.Fields(train)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

// halfDone are temporary files and empty folders below dir.
func halfDone(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == dir {
			return nil
		}
		if strings.HasPrefix(d.Name(), ".") {
			names = append(names, path)
		} else if d.IsDir() {
			inside, err := os.ReadDir(path)
			if err != nil {
				return err
			}
			if len(inside) == 0 {
				names = append(names, path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestSignals stops every command in the middle of long work.
func TestSignals(t *testing.T) {
	dir := longWorkFolder(t)
	signals := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}
	if signal.Ignored(syscall.SIGHUP) { // started by nohup, which the programs under test respect
		signals = signals[:2]
	}
	n := 0
	for name, args := range longWork {
		s := signals[n%len(signals)]
		n++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here := t.TempDir()
			words := strings.Fields(args)
			for i, word := range words {
				if path := filepath.Join(dir, word); shell.Exists(path) {
					words[i] = path
				}
			}
			c := process(t, here, words...)
			var stderr bytes.Buffer
			c.Stderr = &stderr
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(500 * time.Millisecond)
			if err := c.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			code, took := status(c.Wait()), time.Since(began)
			lines := strings.Split(strings.TrimSuffix(stderr.String(), "\n"), "\n")
			if last := lines[len(lines)-1]; code != shell.ExitInterrupted || took > stopsWithin || !strings.HasPrefix(last, "tidemark: interrupted") {
				t.Errorf("%s, %v: status %d after %v, %q; want %d within %v", args, s, code, took, stderr.String(), shell.ExitInterrupted, stopsWithin)
			}
			if left := halfDone(t, here); len(left) > 0 {
				t.Errorf("%s leaves %v behind", args, left)
			}
		})
	}
}

// TestSecondInterrupt ends a training that takes its time to save.
func TestSecondInterrupt(t *testing.T) {
	dir := t.TempDir()
	i := interruption{undo: map[int]func(){}}
	ended := 0
	i.exit = func(code int) { ended = code }
	ctx := context.WithValue(context.Background(), interruptionKey{}, &i)
	done := keep(ctx)
	i.end()
	if ended != 0 {
		t.Error("what is being kept was cut off")
	}
	undone := false
	undoing(ctx, func() { undone = true })
	done()
	if ended != shell.ExitInterrupted || !undone {
		t.Errorf("after it was kept: status %d, undone %v", ended, undone)
	}
	c := process(t, dir, "train", "--preset", "gpt2", "--device", "cpu", "--steps", "1000000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	began := time.Now()
	for range 2 {
		c.Process.Signal(syscall.SIGINT)
		time.Sleep(20 * time.Millisecond)
	}
	if code, took := status(c.Wait()), time.Since(began); code != shell.ExitInterrupted || took > stopsWithin {
		t.Errorf("status %d after %v", code, took)
	}
}

// TestNohup has SIGHUP ignored from the start, as nohup does.
func TestNohup(t *testing.T) {
	c := process(t, t.TempDir(), "activations", "--config", "/dev/stdin")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Path, c.Args = "/bin/sh", append([]string{"sh", "-c", `trap "" HUP; exec "$0" "$@"`, os.Args[0]}, c.Args[1:]...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	c.Process.Signal(syscall.SIGHUP)
	time.Sleep(100 * time.Millisecond)
	io.WriteString(in, `{"model_type":"mlp","dims":[2,3]}`)
	in.Close()
	if code := status(c.Wait()); code != 0 {
		t.Errorf("status %d", code)
	}
}
