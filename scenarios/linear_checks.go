package scenarios

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
)

// linearLog keeps the marks of a run for its checks and its explanation.
type linearLog struct {
	set   LinearSettings
	grad  bool
	rec   *instrument.Recorder
	marks []instrument.Mark
}

func (l *linearLog) mark(name string) { l.marks = append(l.marks, l.rec.Mark(name)) }

// at is the mark of a name; ok is false when the run did not get there.
func (l *linearLog) at(name string) (m instrument.Mark, ok bool) {
	for _, m := range l.marks {
		if m.Name == name {
			return m, true
		}
	}
	return m, false
}

// Sizes in bytes as the document computes them: elements × 4.
func (l *linearLog) parameterBytes() int64 {
	return 4 * (int64(l.set.In)*int64(l.set.Out) + int64(l.set.Out))
}
func (l *linearLog) inputBytes() int64  { return 4 * int64(l.set.Rows) * int64(l.set.In) }
func (l *linearLog) outputBytes() int64 { return 4 * int64(l.set.Rows) * int64(l.set.Out) }

// roundingBytes is the most by which the allocator's blocks exceed n tensors'
// sizes: a block is rounded up to 512 bytes, and a remainder of up to 1 MiB is
// not split off.
func roundingBytes(n int64) int64 { return n * (1<<20 + 512) }

// about checks that blocks for n tensors of expected bytes in all were observed.
func (l *linearLog) about(name, source, claim string, expected, observed, n int64, basis report.Basis) report.Check {
	return report.Check{
		Name: l.name() + " " + name, Source: source, Unit: "bytes", Basis: basis,
		Claim:    claim + fmt.Sprintf(" (blocks may exceed it by up to %d bytes of rounding)", roundingBytes(n)),
		Expected: expected, Observed: observed,
		Holds: observed >= expected && observed <= expected+roundingBytes(n),
	}
}

func (l *linearLog) name() string { return linearRunName(l.grad) }

func (l *linearLog) checks(basis report.Basis) []report.Check {
	var checks []report.Check
	missing := func(name, source, claim string) {
		checks = append(checks, report.Check{Name: l.name() + " " + name, Source: source, Claim: claim, Basis: basis})
	}
	model, okModel := l.at("model")
	in0, okIn := l.at("in0")
	out0, okOut := l.at("out0")
	in1, okIn1 := l.at("in1")
	out1, okOut1 := l.at("out1")
	end, okEnd := l.at("end")

	const parametersClaim = "Parameters take elements × 4 bytes"
	if okModel {
		checks = append(checks, l.about("parameters", "D1.3", parametersClaim,
			l.parameterBytes(), model.ByCategory[instrument.Parameter], 2, basis))
	} else {
		missing("parameters", "D1.3", parametersClaim)
	}
	const inputClaim = "An input takes rows × in × 4 bytes"
	if okIn {
		checks = append(checks, l.about("input", "D1.3", inputClaim,
			l.inputBytes(), in0.ByCategory[instrument.Input], 1, basis))
	} else {
		missing("input", "D1.3", inputClaim)
	}
	const outputClaim = "An output takes rows × out × 4 bytes"
	if okOut {
		checks = append(checks, l.about("output", "D1.3", outputClaim,
			l.outputBytes(), out0.ByCategory[instrument.Activation], 1, basis))
	} else {
		missing("output", "D1.3", outputClaim)
	}
	const stayClaim = "Parameters stay for the whole run: their bytes are the same at every mark between model and end"
	if okEnd {
		same := model.ByCategory[instrument.Parameter]
		for _, m := range l.marks {
			if m.Name != "start" && m.Name != "end" && m.ByCategory[instrument.Parameter] != same {
				same = m.ByCategory[instrument.Parameter]
				break
			}
		}
		checks = append(checks, report.Check{Name: l.name() + " parameters stay", Source: "D1.3", Claim: stayClaim, Unit: "bytes",
			Basis: basis, Expected: model.ByCategory[instrument.Parameter], Observed: same,
			Holds: same == model.ByCategory[instrument.Parameter]})
	} else {
		missing("parameters stay", "D1.3", stayClaim)
	}

	// What is alive when the second input has taken the first one's name.
	alive := int64(1)
	claim := "Without gradients the first input goes as soon as its variable refers to the second: one input is alive"
	if l.grad {
		alive = 2
		claim = "The first input outlives its variable, because forward saved it for backward: two inputs are alive"
	}
	if okIn1 {
		checks = append(checks, l.about("first input", "D1.4", claim, alive*l.inputBytes(), in1.ByCategory[instrument.Input], alive, basis))
	} else {
		missing("first input", "D1.4", claim)
	}
	const replacedClaim = "After the second forward only the second input and the second output are alive"
	if okOut1 {
		got := out1.ByCategory[instrument.Input] + out1.ByCategory[instrument.Activation]
		checks = append(checks, l.about("replaced", "D1.4", replacedClaim, l.inputBytes()+l.outputBytes(), got, 2, basis))
	} else {
		missing("replaced", "D1.4", replacedClaim)
	}
	peakClaim := fmt.Sprintf("The peak is in a forward pass after the first: parameters + %d input(s) + 2 outputs + workspace", alive)
	if okEnd {
		expected := l.parameterBytes() + alive*l.inputBytes() + 2*l.outputBytes() + l.set.WorkspaceBytes
		c := l.about("peak", "D1.4", peakClaim, expected, l.rec.Peak().AllocatedBytes, 4+alive, basis)
		c.Holds = c.Holds && l.rec.Peak().Phase == "forward" && l.rec.Peak().Step > 0
		checks = append(checks, c)
	} else {
		missing("peak", "D1.4", peakClaim)
	}
	const endClaim = "At the end everything goes, but for the library's workspace"
	if okEnd {
		checks = append(checks, report.Check{Name: l.name() + " end", Source: "D1.4", Claim: endClaim, Unit: "bytes", Basis: basis,
			Expected: workspaceBlocks(l.set.WorkspaceBytes), Observed: end.AllocatedBytes,
			Holds: end.AllocatedBytes >= l.set.WorkspaceBytes && end.AllocatedBytes <= l.set.WorkspaceBytes+roundingBytes(1)})
	} else {
		missing("end", "D1.4", endClaim)
	}
	return checks
}

// workspaceBlocks is the workspace's bytes after rounding to blocks.
func workspaceBlocks(bytes int64) int64 { return (bytes + 511) / 512 * 512 }
