package scenarios

import (
	"context"
	"fmt"
	"math"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/scenarios/harness"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// The sizes of the tutorial's linear layer.
const (
	linearIn     = 10_000
	linearOut    = 50_000
	linearRows   = 5_000
	linearPasses = 3
)

func linearScenario() harness.Scenario {
	return harness.Scenario{
		Name:  "linear",
		Title: "A linear layer 10,000 → 50,000 run three times, with and without gradients",
		Claims: []harness.Claim{
			{Source: "D1.3", Text: "Parameters take about 2 GB for the whole run, each input about 200 MB, each output about 1 GB."},
			{Source: "D1.4", Text: "The first input outlives its variable, because the forward pass keeps it for backward; it goes when the second forward has replaced what was saved. At the end everything goes. Without gradients nothing is kept."},
		},
		Flags: []harness.Flag{
			{Name: "scale", Default: 1.0, Small: 0.05, Usage: "multiply the experiment's sizes; 1 is the document's"},
			{Name: "grad", Default: "both", Usage: "on, off or both"},
			harness.WorkspaceFlag(),
		},
		Run: runLinear,
	}
}

// LinearSettings are the resolved settings of the linear scenario.
type LinearSettings struct {
	In             int     `json:"in"`
	Out            int     `json:"out"`
	Rows           int     `json:"rows"`
	Passes         int     `json:"passes"`
	DType          string  `json:"dtype"`
	Scale          float64 `json:"scale"`
	Grad           string  `json:"grad"`
	WorkspaceBytes int64   `json:"workspace_bytes"`
}

// Below minScale a tensor is smaller than the allocator's smallest block, and
// inputs and outputs could not be told apart by their bytes; maxScale keeps
// every size of a scaled experiment within an int64 of bytes.
const (
	minScale = 0.001
	maxScale = 1000
)

// scaled multiplies a size by the scale, at least 1.
func scaled(n int, scale float64) int { return max(1, int(math.Round(float64(n)*scale))) }

// checkScale refuses scales that give no sensible sizes.
func checkScale(scale float64) error {
	if !(scale >= minScale && scale <= maxScale) {
		return fmt.Errorf("--scale %v: it must be from %v to %d; 1 is the document's size", scale, minScale, maxScale)
	}
	return nil
}

func runLinear(ctx context.Context, o harness.Options) (*harness.Outcome, error) {
	scale, grad := o.Values.Fraction("scale"), o.Values.Text("grad")
	if err := checkScale(scale); err != nil {
		return nil, err
	}
	workspace, err := o.Values.Workspace()
	if err != nil {
		return nil, err
	}
	set := LinearSettings{
		In: scaled(linearIn, scale), Out: scaled(linearOut, scale), Rows: scaled(linearRows, scale),
		Passes: linearPasses, DType: device.Float32.String(), Scale: scale, Grad: grad, WorkspaceBytes: workspace,
	}
	var grads []bool
	switch grad {
	case "on":
		grads = []bool{true}
	case "off":
		grads = []bool{false}
	case "both":
		grads = []bool{true, false}
	default:
		return nil, fmt.Errorf("--grad %q: it is on, off or both", grad)
	}
	out := &harness.Outcome{Report: &report.Report{Scenario: "linear", Settings: set}}
	for _, grad := range grads {
		l, err := linearRun(ctx, o, set, grad, out)
		if err != nil {
			return out, err
		}
		if o.Meta() {
			continue
		}
		m := o.OnMeta()
		m.Looking = nil
		want, err := linearRun(ctx, m, set, grad, &harness.Outcome{Report: &report.Report{}})
		if err != nil {
			return out, fmt.Errorf("the calculation for comparison: %w", err)
		}
		harness.Checker{Out: out, Basis: o.Basis(), Run: l.name()}.AsCalculated(want.digest, l.digest)
	}
	return out, nil
}

// linearRunName is also the name of PyTorch's record of the same run.
func linearRunName(grad bool) string {
	if grad {
		return "linear_grad"
	}
	return "linear_nograd"
}

// linearRun is one run of the tutorial's loop:
//
//	model = Linear(in, out)
//	for _ in range(3):
//	    input = randn(rows, in)
//	    output = model(input)
func linearRun(ctx context.Context, o harness.Options, set LinearSettings, grad bool, out *harness.Outcome) (*linearLog, error) {
	dev, err := o.Open(o.Alloc)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	out.Report.Device = harness.DeviceOf(dev.Info())
	rec := instrument.New(instrument.Options{NoTiming: o.Meta()})
	rec.Attach(dev.Allocator())
	s := session.New(dev, rec, session.Options{WorkspaceBytes: set.WorkspaceBytes})
	layer := nn.NewLinear(set.In, set.Out, true)
	b := nn.NewBuilder(layer, nn.Options{})
	spec := device.Spec{DType: device.Float32, Shape: []int{set.Rows, set.In}}
	y, err := b.Run(b.Input("input", spec))
	if err != nil {
		return nil, err
	}
	var options plan.Options
	if grad {
		options.Differentiate = y.Nodes
	}
	plan, err := plan.Compile(b, y.Nodes, options)
	if err != nil {
		return nil, err
	}
	name := linearRunName(grad)
	l := &linearLog{set: set, grad: grad, rec: rec, asked: harness.FollowRequests(rec, dev.Allocator())}
	l.digest.Follow(dev.Allocator())
	record := func() {
		rec.Stop()
		l.settle()
		o.Look(l)
		run := report.NewRun(name, nn.Count(layer), o.Basis(), rec)
		if set.WorkspaceBytes > 0 && !o.Device.OwnWorkspace {
			run.Assumptions = append(run.Assumptions, report.AssumedWorkspace(set.WorkspaceBytes))
		}
		out.Report.Runs = append(out.Report.Runs, run)
		out.Recordings = append(out.Recordings, harness.Recording{Name: name, Recorder: rec, Segments: dev.Allocator().Segments(), Config: dev.Allocator().Config()})
		l.checks(harness.Checker{Out: out, Basis: o.Basis()})
		out.Explanation = append(out.Explanation, l.explain()...)
	}
	l.mark("start")
	if err := s.Measure("model", func() error { return s.Materialize(layer, device.Float32) }); err != nil {
		record()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	l.mark("model")
	v := linearValues{s: s, plan: plan, spec: spec}
	for i := range set.Passes {
		if err := ctx.Err(); err != nil {
			record()
			return nil, err
		}
		o.Note("%s: pass %d of %d", name, i+1, set.Passes)
		rec.Step(i)
		err := v.pass(i, l.mark)
		if err != nil {
			record()
			return nil, fmt.Errorf("%s, pass %d: %w", name, i, err)
		}
		l.mark(fmt.Sprintf("out%d", i))
	}
	rec.EndStep()
	err = s.Measure("release", func() error {
		v.result.Release()
		v.x.Release()
		s.Close()
		return nil
	})
	l.mark("end")
	record()
	return l, err
}

// linearValues are the variables of the document's loop.
type linearValues struct {
	s      *session.Session
	plan   *plan.Plan
	spec   device.Spec
	x      *session.Value
	result *session.Result
}

// pass makes an input and runs the layer on it. Assignment in Python makes the
// new value first and then drops what the variable referred to; the order is
// what the document shows.
func (v *linearValues) pass(i int, mark func(string)) error {
	err := v.s.Measure("input", func() error {
		next, err := v.s.Input("input", v.spec, nil)
		if err != nil {
			return err
		}
		if err := v.s.Fill(next, "normal", 1, uint64(1_000_000+i)); err != nil {
			return err
		}
		v.x.Release()
		v.x = next
		return nil
	})
	if err != nil {
		return err
	}
	mark(fmt.Sprintf("in%d", i))
	return v.s.Measure("forward", func() error {
		next, err := v.s.Forward(v.plan, v.x)
		if err != nil {
			return err
		}
		v.result.Release()
		v.result = next
		return nil
	})
}
