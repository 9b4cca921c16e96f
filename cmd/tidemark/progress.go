package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/train"
)

// progress tells of a training: a line that is drawn again on a terminal, a
// line now and then elsewhere.
type progress struct {
	w        io.Writer
	terminal bool
	width    int
	from, to int
	began    time.Time
	last     time.Time
	tokens   int
	rows     int
	drawn    bool
}

// lineEvery is how often there is a line where there is no terminal.
const lineEvery = 5 * time.Second

func newProgress(w io.Writer, from, to int) *progress {
	p := &progress{w: w, from: from, to: to, began: time.Now()}
	if f := shell.TerminalOf(w); f != nil {
		p.w, p.terminal, p.width = f, true, widthOf(f)
	}
	return p
}

// widthOf is how many columns a terminal has: as COLUMNS says, else as it says
// itself, else 80.
func widthOf(f *os.File) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
		return n
	}
	return 80
}

func (p *progress) step(s train.StepStats) {
	p.tokens += s.Tokens
	p.rows += s.Rows
	done := s.Step + 1
	now := time.Now()
	wait := lineEvery
	if p.terminal {
		wait = 100 * time.Millisecond
	}
	if now.Sub(p.last) < wait && done != p.to {
		return
	}
	p.last = now
	elapsed := now.Sub(p.began).Seconds()
	rate := fmt.Sprintf("%.0f rows/s", float64(p.rows)/elapsed)
	if p.tokens > 0 {
		rate = fmt.Sprintf("%.0f tokens/s", float64(p.tokens)/elapsed)
	}
	loss := "-"
	if s.Loss != nil {
		loss = fmt.Sprintf("%.4f", *s.Loss)
	}
	left := time.Duration(elapsed / float64(done-p.from) * float64(p.to-done) * float64(time.Second)).Round(time.Second)
	allocated, reserved := show.Bytes(s.AllocatedBytes, false), show.Bytes(s.ReservedBytes, false)
	if !p.terminal {
		fmt.Fprintf(p.w, "step %d/%d  loss %s  %s  allocated %s  reserved %s (peaks)  %v left\n",
			done, p.to, loss, rate, allocated, reserved, left)
		return
	}
	text := fmt.Sprintf("%d/%d loss %s %s alloc %s res %s %v left", done, p.to, loss, rate, allocated, reserved, left)
	if bar := min(20, p.width-1-len(text)-len("[] ")); bar > 0 { // what room there is
		full := bar * done / p.to
		text = "[" + strings.Repeat("#", full) + strings.Repeat(".", bar-full) + "] " + text
	}
	if len(text) >= p.width {
		text = text[:p.width-1]
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", text)
	p.drawn = true
}

func (p *progress) evaluation(step int, e train.Evaluation) {
	p.end()
	fmt.Fprintf(p.w, "after step %d: held-out loss %.4f, accuracy %.2f %%\n", step, e.Loss, 100*e.Accuracy)
}

// end leaves the line that is being drawn.
func (p *progress) end() {
	if p.drawn {
		fmt.Fprintln(p.w)
		p.drawn = false
	}
}
