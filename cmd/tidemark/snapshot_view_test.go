package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
)

// terminal is the program in a pseudo-terminal of 80 by 24, with an emulator
// that knows what is on the screen.
type terminal struct {
	t      *testing.T
	file   *os.File
	cmd    *exec.Cmd
	screen *vt.SafeEmulator

	mu  sync.Mutex
	raw bytes.Buffer // all that the program wrote
}

func startTerminal(t *testing.T, env []string, args ...string) *terminal {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), asProgram+"=1", "TERM=xterm-256color", "LC_ALL=C.UTF-8", "NO_COLOR="), env...)
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	s := &terminal{t: t, file: f, cmd: cmd, screen: vt.NewSafeEmulator(80, 24)}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := f.Read(buf)
			s.mu.Lock()
			s.raw.Write(buf[:n])
			s.mu.Unlock()
			s.screen.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	go io.Copy(f, s.screen) // the terminal's answers
	t.Cleanup(func() {
		cmd.Process.Kill()
		f.Close()
		s.screen.Close()
	})
	return s
}

// written is all that the program wrote.
func (s *terminal) written() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.raw.String()
}

// shows waits until a text is on the screen.
func (s *terminal) shows(want string) {
	s.t.Helper()
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(10 * time.Millisecond) {
		if strings.Contains(ansi.Strip(s.screen.String()), want) {
			return
		}
	}
	s.t.Fatalf("the terminal does not show %q but\n%s", want, s.screen.String())
}

func (s *terminal) types(keys string) {
	s.t.Helper()
	if _, err := io.WriteString(s.file, keys); err != nil {
		s.t.Fatal(err)
	}
}

// status waits for the program's end.
func (s *terminal) status() int {
	s.t.Helper()
	done := make(chan struct{})
	go func() { s.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		s.t.Fatal("the program does not end")
	}
	return s.cmd.ProcessState.ExitCode()
}

// TestSnapshotView uses the viewer as over SSH: keys in, a screen out.
func TestSnapshotView(t *testing.T) {
	s := startTerminal(t, nil, "snapshot", "view", recordedSnapshot("train_smol"))
	s.shows("event 7666 of 10368")
	if !strings.Contains(s.written(), "\x1b[34m") {
		t.Errorf("the timeline has no colour: %q", s.written())
	}
	s.types("[")
	s.shows("backward of step 2")
	s.types("p")
	s.shows("1.512 GiB (1,623,948,288 bytes)")
	s.types("/silu\r")
	s.shows("silu (functional.py:2397)")
	s.types("\x1b[B\t")
	s.shows("Activations that train.py:22 keeps")
	s.types("q")
	if code := s.status(); code != 0 {
		t.Errorf("q ends with status %d", code)
	}
}

// colours are the sequences that set one.
var colours = regexp.MustCompile(`\x1b\[[0-9;]*\b(3[0-7]|4[0-7]|9[0-7]|38|48)[;m]`)

// TestSnapshotViewPlain does without colours, and compares two files.
func TestSnapshotViewPlain(t *testing.T) {
	s := startTerminal(t, []string{"NO_COLOR=1", "LC_ALL=C"}, "snapshot", "view", recordedSnapshot("bert_amp"), recordedSnapshot("oom_batch"))
	s.shows("less ")
	raw := s.written()
	if colours.MatchString(raw) || strings.ContainsFunc(raw, func(r rune) bool { return r > '~' }) {
		t.Errorf("colours or signs that are not ASCII: %q", raw)
	}
	s.types("\x03")
	if code := s.status(); code != shell.ExitInterrupted {
		t.Errorf("Ctrl-C ends with status %d, want %d", code, shell.ExitInterrupted)
	}
}

// TestSnapshotViewRefuses needs a terminal that can do it.
func TestSnapshotViewRefuses(t *testing.T) {
	if code, _, stderr := tidemark(t, "snapshot", "view", recordedSnapshot("bert_amp")); code != 1 || !strings.Contains(stderr, "needs a terminal") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("without a terminal: status %d, %q", code, stderr)
	}
	if code, _, stderr := tidemark(t, "snapshot", "view"); code != 1 || !strings.Contains(stderr, "one snapshot file, or two") {
		t.Errorf("without a file: status %d, %q", code, stderr)
	}
	s := startTerminal(t, []string{"TERM=dumb"}, "snapshot", "view", recordedSnapshot("bert_amp"))
	s.shows("snapshot explain FILE prints instead")
	if code := s.status(); code != 1 {
		t.Errorf("TERM=dumb ends with status %d", code)
	}
}
