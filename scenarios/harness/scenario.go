// Package harness is what the experiments of package scenarios share: their
// flags, trainings that are watched event by event, checks of claims, and prose.
package harness

import (
	"context"
	"fmt"
	"io"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
)

// Scenario is an experiment.
type Scenario struct {
	Name  string
	Title string // a line
	// Claims are what it tests, by the documents' numbers.
	Claims []Claim
	// Flags are the settings that its user can choose.
	Flags []Flag
	// Mixed says that it can be done in mixed precision (Values.Precision).
	Mixed bool
	// Run does the experiment. A run that fails midway returns what it
	// measured until then beside the error.
	Run func(context.Context, Options) (*Outcome, error)
}

// Claim is a sentence of a document.
type Claim struct {
	Source string // such as D1.3
	Text   string
}

// Options are what a scenario runs with.
type Options struct {
	// Open opens the device that was asked for, with an allocator of the given
	// settings; each run of a scenario opens its own, so that none finds
	// another's cached memory.
	Open func(alloc.Config) (device.Device, error)
	// Alloc are the allocator's settings unless a scenario is about others.
	Alloc alloc.Config
	// Device is the kind of device that Open opens.
	Device device.Kind
	// Values are the scenario's settings; see Scenario.Resolve.
	Values Values
	// Progress gets a line for each thing that begins; nil for silence.
	Progress func(format string, args ...any)

	// Looking, unless nil, gets what was measured before checks look at it.
	// Tests change it there, to see checks fail.
	Looking func(measured any)
}

// Outcome is what a scenario found.
type Outcome struct {
	Report *report.Report
	// Recordings are the timelines of the first of Report.Runs, in their
	// order; a picture shows them on one scale.
	Recordings []Recording
	// Explanation says, line by line, what happened and why.
	Explanation []string
	// Pictures are drawings beside the timelines.
	Pictures []Drawing
}

// Recording is the timeline of one run.
type Recording struct {
	Name     string
	Recorder *instrument.Recorder
	Segments []alloc.Segment
	Config   alloc.Config
}

// Drawing is a picture that can be written as SVG and as PNG.
type Drawing struct {
	// Name is the name of its files without their ending.
	Name               string
	WriteSVG, WritePNG func(io.Writer) error
}

// WriteExplanation writes an outcome's explanation.
func (o *Outcome) WriteExplanation(w io.Writer) error {
	for _, line := range o.Explanation {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

func (o Options) Note(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(format, args...)
	}
}

// Look is called with what was measured before checks look at it.
func (o Options) Look(measured any) {
	if o.Looking != nil {
		o.Looking(measured)
	}
}

// Meta says that nothing is computed.
func (o Options) Meta() bool { return !o.Device.Computes }

// OnMeta is the same experiment on the meta device.
func (o Options) OnMeta() Options {
	o.Device = device.KindMeta
	o.Open = func(c alloc.Config) (device.Device, error) { return device.NewMeta(c), nil }
	o.Progress = nil
	return o
}

// Basis is what byte counts on the device rest on.
func (o Options) Basis() report.Basis {
	if o.Meta() {
		return report.Calculated
	}
	return report.Observed
}

// DeviceOf converts a device's description for a report.
func DeviceOf(i device.Info) report.Device {
	return report.Device{Kind: i.Kind.Name, Name: i.Name, Driver: i.Driver, CUDA: i.CUDA, MemoryBytes: i.MemoryBytes}
}
