package scenarios

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
)

// linearLog keeps the marks of a run for its checks and its explanation.
type linearLog struct {
	set   LinearSettings
	grad  bool
	rec   *instrument.Recorder
	asked *harness.Requests
	marks []linearMark
	// peak is the greatest number of bytes asked for at one time, of the phases
	// of passes, and peakIn says in which.
	peak   int64
	peakIn harness.Span
	digest harness.Digest
}

// linearMark is a mark with what was asked for then.
type linearMark struct {
	instrument.Mark
	harness.Requested
}

func (l *linearLog) mark(name string) {
	l.marks = append(l.marks, linearMark{l.rec.Mark(name), l.asked.Now})
}

// settle reads the peak off the phases that have ended.
func (l *linearLog) settle() {
	l.asked.Settle()
	for _, s := range l.asked.Spans {
		if s.AtPeak.Total > l.peak {
			l.peak, l.peakIn = s.AtPeak.Total, s
		}
	}
}

// at is the mark of a name; nil when the run did not get there.
func (l *linearLog) at(name string) *linearMark {
	for i := range l.marks {
		if l.marks[i].Name == name {
			return &l.marks[i]
		}
	}
	return nil
}

// Sizes in bytes as the document computes them: elements × 4.
func (l *linearLog) parameterBytes() int64 {
	return 4 * (int64(l.set.In)*int64(l.set.Out) + int64(l.set.Out))
}
func (l *linearLog) inputBytes() int64  { return 4 * int64(l.set.Rows) * int64(l.set.In) }
func (l *linearLog) outputBytes() int64 { return 4 * int64(l.set.Rows) * int64(l.set.Out) }

func (l *linearLog) name() string { return linearRunName(l.grad) }

// inputsKept is how many inputs are alive when the second has taken the first
// one's name.
func (l *linearLog) inputsKept() int64 {
	if l.grad {
		return 2
	}
	return 1
}

// checks compares the marks with what the document says. All bytes are those
// asked for, before the allocator's rounding, and so exact.
func (l *linearLog) checks(c harness.Checker) {
	c.Run = l.name()
	of := func(k ...instrument.Category) func(*linearMark) int64 {
		return func(m *linearMark) (n int64) {
			for _, k := range k {
				n += m.Requested.ByCategory[k]
			}
			return n
		}
	}
	first := "Without gradients the first input goes as soon as its variable refers to the second: one input is alive"
	if l.grad {
		first = "The first input outlives its variable, because forward saved it for backward: two inputs are alive"
	}
	for _, k := range []struct {
		name, source, claim string
		mark                string // the last that it looks at
		expected            int64
		observed            func(*linearMark) int64
	}{
		{"parameters", "D1.3", "Parameters take elements × 4 bytes", "model", l.parameterBytes(), of(instrument.Parameter)},
		{"input", "D1.3", "An input takes rows × in × 4 bytes", "in0", l.inputBytes(), of(instrument.Input)},
		{"output", "D1.3", "An output takes rows × out × 4 bytes", "out0", l.outputBytes(), of(instrument.Activation)},
		{"parameters stay", "D1.3", "Parameters stay for the whole run: their bytes are the same at every mark between model and end", "end",
			l.parameterBytes(), func(*linearMark) int64 { return l.changedParameters() }},
		{"first input", "D1.4", first, "in1", l.inputsKept() * l.inputBytes(), of(instrument.Input)},
		{"replaced", "D1.4", "After the second forward only the second input and the second output are alive", "out1",
			l.inputBytes() + l.outputBytes(), of(instrument.Input, instrument.Activation)},
		{"end", "D1.4", "At the end everything goes, but for the library's workspace", "end",
			l.set.WorkspaceBytes, func(m *linearMark) int64 { return m.Total }},
		{"peak", "D1.4", fmt.Sprintf("The peak, as asked for, is parameters + %d input(s) + 2 outputs + workspace", l.inputsKept()), "end",
			l.parameterBytes() + l.inputsKept()*l.inputBytes() + 2*l.outputBytes() + l.set.WorkspaceBytes,
			func(*linearMark) int64 { return l.peak }},
	} {
		if m := l.at(k.mark); m != nil {
			c.Bytes(k.name, k.source, k.claim+" (as asked for, before rounding)", k.expected, k.observed(m))
		} else {
			c.Open(k.name, k.source, k.claim, "the run ended before its mark "+k.mark)
		}
	}
	const where = "The peak is in a forward pass after the first, when the new output is there beside the one before"
	if l.at("end") == nil {
		c.Open("peak in", "D1.4", where, "the run ended before its mark end")
		return
	}
	c.That("peak in", "D1.4", where, "forward of a step after 0", fmt.Sprintf("%s of step %d", l.peakIn.Name, l.peakIn.Step),
		l.peakIn.Name == "forward" && l.peakIn.Step > 0)
}

// changedParameters is the parameters' bytes at the first mark between model
// and end that has others than the mark model, or else those of model.
func (l *linearLog) changedParameters() int64 {
	same := l.at("model").Requested.ByCategory[instrument.Parameter]
	for _, m := range l.marks {
		if n := m.Requested.ByCategory[instrument.Parameter]; m.Name != "start" && m.Name != "end" && n != same {
			return n
		}
	}
	return same
}
