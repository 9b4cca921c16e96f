// Package crash kills trainings and looks at what they leave.
package crash

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/train"
)

// kills is how often the crash test ends the program; `make crash` has 200.
var kills = flag.Int("kills", 6, "how often TestCrash ends a training")

// crashSeed varies what the crash test does.
var crashSeed = flag.Uint64("crash-seed", 1, "seed of TestCrash")

// crashTrainings are what is killed: all save often, and have what a stop could
// disturb.
var crashTrainings = []string{
	"--steps 24 --accumulate 3 --dropout 0.2 --eval-every 5 --eval-batches 2 --save-every 4 --clip 1",
	"--steps 30 --accumulate 2 --dropout 0.1 --eval-every 1 --eval-batches 1 --save-every 1 --optimizer sgd-momentum --lr 0.1",
	"--steps 20 --dropout 0.3 --eval-every 7 --eval-batches 3 --save-every 5 --optimizer adafactor --schedule cosine --gradient-checkpointing",
}

const crashModel = "--device cpu --preset gpt-char --layers 1 --width 32 --heads 2 --seq 16 --batch 2 --data ../text.txt --out out --force "

// crashCalls are the system calls at which a training is killed, or which fail.
var crashCalls = []string{"openat", "write", "fsync", "renameat", "mkdirat", "unlinkat", "flock", "fchmodat"}

// crash is a training that is killed again and again.
type crash struct {
	t       *testing.T
	random  *rand.Rand
	args    string
	calm    string            // the folder of an undisturbed run
	weights map[string]string // of that run, by step
	counts  map[string]int    // of its system calls
	took    time.Duration
	done    map[string]int
}

// binary is the program.
var binary string

// program is the program as a process, under another program if need be.
func program(dir string, args []string, under ...string) *exec.Cmd {
	line := append(append(under, binary), args...)
	c := exec.Command(line[0], line[1:]...)
	c.Dir = dir
	return c
}

// build makes the program, and a text to train on beside the folders of the
// trainings.
func build(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	binary = filepath.Join(root, "tidemark")
	if out, err := exec.Command("go", "build", "-o", binary, "..").CombinedOutput(); err != nil {
		t.Fatalf("%v, %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(root, "text.txt"), []byte(strings.Repeat("The quick brown fox jumps over the lazy dog.\n", 60)), 0o666); err != nil {
		t.Fatal(err)
	}
	return root
}

// TestCrash kills trainings at random moments and at random system calls, and
// has system calls fail. Whatever is saved then loads and is, to the bit, what
// the undisturbed training was after as many steps; and what goes on from it
// ends as that did, weights, optimizer, state and metrics.
func TestCrash(t *testing.T) {
	root := build(t)
	strace, err := exec.LookPath("strace")
	if err == nil {
		err = exec.Command(strace, "-qq", "-e", "trace=none", "true").Run()
	}
	traced := err == nil
	if !traced {
		t.Logf("strace cannot be used (%v): kills come at random moments only", err)
	}
	done := map[string]int{}
	total, runs := 0, 0
	for total < *kills {
		n := min(*kills-total, max(*kills/12, 2))
		c := &crash{t: t, random: rand.New(rand.NewPCG(*crashSeed, uint64(runs))), args: crashModel + crashTrainings[runs%len(crashTrainings)], done: done}
		c.undisturbed(filepath.Join(root, fmt.Sprintf("calm-%d", runs)), traced)
		c.disturbed(filepath.Join(root, fmt.Sprintf("killed-%d", runs)), n, traced)
		total += n
		runs++
		if t.Failed() {
			break
		}
	}
	t.Logf("%d trainings ended %d times: %v", runs, total, done)
}

// undisturbed runs the training once, keeps every save of it, and counts its
// system calls.
func (c *crash) undisturbed(dir string, traced bool) {
	c.t.Helper()
	if err := os.Mkdir(dir, 0o777); err != nil {
		c.t.Fatal(err)
	}
	c.calm = filepath.Join(dir, "save")
	c.counts = map[string]int{}
	args := strings.Fields("train " + c.args + " --save save")
	began := time.Now()
	if out, err := program(dir, args).CombinedOutput(); err != nil {
		c.t.Fatalf("undisturbed: %v, %s", err, out)
	}
	c.took = time.Since(began)
	if traced {
		again := strings.Fields("train " + c.args + " --save again")
		log := filepath.Join(dir, "log")
		if out, err := program(dir, again, "strace", "-f", "-qq", "--seccomp-bpf", "-o", log, "-e", "trace="+strings.Join(crashCalls, ",")).CombinedOutput(); err != nil {
			c.t.Fatalf("under strace: %v, %s", err, out)
		}
		b, err := os.ReadFile(log)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\d+ +(\w+)\(`).FindAllSubmatch(b, -1) {
			c.counts[string(m[1])]++
		}
	}
	c.everyStep(args)
}

// everyStep notes what the weights and the optimizer's state are after each
// step, from a training of this process.
func (c *crash) everyStep(args []string) {
	c.t.Helper()
	c.weights = map[string]string{}
	settings, err := train.ReadSettings(c.calm)
	if err != nil {
		c.t.Fatal(err)
	}
	sources, err := settings.OpenSources(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	tr, err := train.FromSettings(dev, nil, settings, train.TrainerOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	defer tr.Close()
	note := func() {
		path, err := tr.Save(filepath.Join(filepath.Dir(c.calm), "step"))
		if err != nil {
			c.t.Fatal(err)
		}
		c.weights[filepath.Base(path)] = fingerprint(c.t, path)
	}
	note()
	if err := tr.Run(c.t.Context(), sources, train.LoopOptions{OnStep: func(train.StepStats) error { note(); return nil }}); err != nil {
		c.t.Fatal(err)
	}
}

// fingerprint is the checksum of all that a save holds.
func fingerprint(t *testing.T, path string) string {
	t.Helper()
	h := sha256.New()
	for _, name := range []string{"config.json", "model.safetensors", "optimizer.safetensors", "state.json"} {
		b, err := os.ReadFile(filepath.Join(path, name))
		if err != nil {
			t.Errorf("a save is not whole: %v", err)
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(b), b)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// disturbed runs the training in a folder of its own, ends it so many times,
// and lets it finish.
func (c *crash) disturbed(dir string, n int, traced bool) {
	t := c.t
	t.Helper()
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	save := filepath.Join(dir, "save")
	args := func() []string {
		if train.HasSave(save) {
			return strings.Fields("train --device cpu --resume save --out out --force --save-every " + regexp.MustCompile(`save-every (\d+)`).FindStringSubmatch(c.args)[1])
		}
		return strings.Fields("train " + c.args + " --save save")
	}
	for hits, tries := 0, 0; hits < n; tries++ {
		if tries > 8*n {
			t.Errorf("of %d tries to end a training %d did", tries, hits)
			return
		}
		if c.finished(save) { // begin again
			c.equal(save)
			if err := os.RemoveAll(save); err != nil {
				t.Fatal(err)
			}
		}
		end := c.atMoment
		if traced && c.random.IntN(2) == 0 {
			end = c.atSystemCall
		}
		what, ended := end(dir, args())
		if ended {
			hits++
			c.done[what[:strings.IndexByte(what+",", ',')]]++
		}
		c.loads(save, what)
		if t.Failed() {
			return
		}
	}
	killed := c.finished(save)
	if !killed {
		if out, err := program(dir, args()).CombinedOutput(); err != nil {
			t.Errorf("after the last kill: %v, %s", err, out)
			return
		}
	}
	c.equal(save)
	if killed {
		return // after the last step: a lock's file or an older save may be left, which whoever saves there next removes
	}
	entries, err := os.ReadDir(save)
	if err != nil || len(entries) != 2 {
		t.Errorf("the save folder holds %v, want the metrics and one save; %v", entries, err)
	}
}

// atMoment ends the program with a signal at a random moment, or reports that it
// was done before.
func (c *crash) atMoment(dir string, args []string) (what string, ended bool) {
	signals := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}
	s := signals[c.random.IntN(len(signals))]
	p := program(dir, args)
	var errs bytes.Buffer
	p.Stderr = &errs
	if err := p.Start(); err != nil {
		c.t.Fatal(err)
	}
	time.Sleep(time.Duration(c.random.Float64() * float64(c.took)))
	p.Process.Signal(s)
	err := p.Wait()
	status := p.ProcessState
	switch {
	case err == nil:
		return "", false
	case s == syscall.SIGKILL && status.Sys().(syscall.WaitStatus).Signal() == s:
	case s != syscall.SIGKILL && (status.ExitCode() == 130 || status.Sys().(syscall.WaitStatus).Signal() == s):
		// The signal's own end: before the program listens.
	default:
		c.t.Errorf("%v: %v, %s", s, err, errs.Bytes())
	}
	return fmt.Sprint(s), true
}

// atSystemCall kills the program at a system call, or has the call fail, or
// reports that the call did not come.
func (c *crash) atSystemCall(dir string, args []string) (what string, ended bool) {
	var calls []string
	for _, name := range crashCalls {
		if c.counts[name] > 0 {
			calls = append(calls, name)
		}
	}
	call := calls[c.random.IntN(len(calls))]
	how := "signal=KILL"
	if c.random.IntN(3) == 0 && (call == "fsync" || call == "renameat" || call == "mkdirat") {
		how = []string{"error=ENOSPC", "error=EIO"}[c.random.IntN(2)]
	}
	// strace counts the calls of each thread, which are a few of all.
	n := 1 + c.random.IntN(1+c.random.IntN(1+c.counts[call]/4))
	what = fmt.Sprintf("%s: %s, call %d", call, how, n)
	inject := fmt.Sprintf("inject=%s:%s:when=%d", call, how, n)
	p := program(dir, args, "strace", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace="+call, "-e", inject)
	out, err := p.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	if how != "signal=KILL" && err != nil {
		if lines := bytes.Count(out, []byte("tidemark: ")); exit.ExitCode() != 1 || lines != 1 {
			c.t.Errorf("%s: %v, %s", what, err, out)
		}
	}
	return what, err != nil
}

// loads checks that what is saved is whole and is what the undisturbed training
// was.
func (c *crash) loads(save, after string) {
	t := c.t
	t.Helper()
	if !train.HasSave(save) {
		return
	}
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	tr, err := train.Resume(dev, nil, save, nil, train.TrainerOptions{})
	if err != nil {
		t.Errorf("after %s: %v", after, err)
		return
	}
	defer tr.Close()
	name := fmt.Sprintf("step-%08d", tr.Steps())
	path := filepath.Join(save, name)
	if _, err := os.Stat(path); err != nil {
		path = filepath.Join(save, strings.Replace(name, "step-", "step-.", 1))
	}
	if got := fingerprint(t, path); got != c.weights[name] {
		t.Errorf("after %s: %s is not what the undisturbed training was", after, path)
	}
}

func (c *crash) finished(save string) bool {
	_, err := os.Stat(filepath.Join(save, filepath.Base(c.last())))
	return err == nil
}

// last is the undisturbed training's save.
func (c *crash) last() string {
	saves, err := filepath.Glob(filepath.Join(c.calm, "step-*"))
	if err != nil || len(saves) != 1 {
		c.t.Fatal(saves, err)
	}
	return saves[0]
}

// equal checks that a training which is done ended as the undisturbed one did.
func (c *crash) equal(save string) {
	c.t.Helper()
	path := filepath.Join(save, filepath.Base(c.last()))
	if fingerprint(c.t, path) != fingerprint(c.t, c.last()) {
		c.t.Errorf("%s differs from the end of the undisturbed training", path)
	}
	if got, want := c.lines(save), c.lines(c.calm); got != want {
		c.t.Errorf("metrics\n%sof the undisturbed training\n%s", got, want)
	}
}

// lines are the metrics without what was measured in time and memory.
func (c *crash) lines(save string) string {
	b, err := os.ReadFile(filepath.Join(save, train.MetricsFile))
	if err != nil {
		c.t.Error(err)
	}
	var out strings.Builder
	for line := range bytes.Lines(b) {
		var l map[string]any
		if err := json.Unmarshal(line, &l); err != nil {
			c.t.Errorf("%s: %v", line, err)
		}
		for _, name := range []string{"seconds", "allocated_bytes", "reserved_bytes"} {
			delete(l, name)
		}
		fmt.Fprintln(&out, strconv.Quote(fmt.Sprint(l)))
	}
	return out.String()
}

// TestBrokenPipe has whoever reads the program's output, and then its messages,
// stop after the first line, as head -1 does: the training goes on and is saved.
func TestBrokenPipe(t *testing.T) {
	root := build(t)
	for i, both := range []bool{false, true} {
		dir := filepath.Join(root, fmt.Sprint(i))
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		p := program(dir, strings.Fields("train "+crashModel+crashTrainings[0]+" --save save"))
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		p.Stdout = w
		var errs bytes.Buffer
		p.Stderr = &errs
		if both {
			p.Stderr = w
		}
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if _, err := r.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
		r.Close()
		p.Wait()
		if code := p.ProcessState.ExitCode(); code != 1 || !both && !strings.Contains(errs.String(), "broken pipe") {
			t.Errorf("status %d, %s", code, errs.Bytes())
		}
		if !exists(filepath.Join(dir, "save", "step-00000024", "state.json")) {
			t.Errorf("the training was not saved; %s", errs.Bytes())
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
