// Package scenarios holds the experiments: a file each, with what the documents
// claim, the code that reproduces it, and the checks of the claims.
package scenarios

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

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
	// Run does the experiment.
	Run func(context.Context, Options) (*Outcome, error)
}

// Claim is a sentence of a document.
type Claim struct {
	Source string // such as D1.3
	Text   string
}

// Options are what the command line sets for every scenario. A scenario uses
// those that concern it.
type Options struct {
	// Open opens the device that was asked for; each run of a scenario opens
	// its own, so that none finds another's cached memory.
	Open func() (device.Device, error)
	// DeviceKind is the kind of device that Open opens.
	DeviceKind string
	// Scale multiplies the sizes of the experiment; 1 is the document's.
	Scale float64
	// Grad is "on", "off" or "both".
	Grad string
	// WorkspaceBytes is what a matrix library is assumed to keep.
	WorkspaceBytes int64
	// Progress gets a line for each thing that begins; nil for silence.
	Progress func(format string, args ...any)
}

// Outcome is what a scenario found.
type Outcome struct {
	Report *report.Report
	// Recordings are the runs' timelines, in the order of Report.Runs.
	Recordings []Recording
	// Explanation says, line by line, what happened and why.
	Explanation []string
}

// Recording is the timeline of one run.
type Recording struct {
	Name     string
	Recorder *instrument.Recorder
	Segments []alloc.Segment
	Config   alloc.Config
}

// All lists the scenarios by name.
func All() []Scenario {
	all := []Scenario{linearScenario()}
	slices.SortFunc(all, func(a, b Scenario) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Find is the scenario of a name.
func Find(name string) (Scenario, error) {
	var names []string
	for _, s := range All() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Scenario{}, fmt.Errorf("unknown scenario %q: there is %s", name, strings.Join(names, ", "))
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

func (o Options) progress(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(format, args...)
	}
}

// basis is what byte counts on the device rest on.
func (o Options) basis() report.Basis {
	if o.DeviceKind == "meta" {
		return report.Calculated
	}
	return report.Observed
}

// deviceOf converts a device's description for a report.
func deviceOf(i device.Info) report.Device {
	return report.Device{Kind: i.Kind, Name: i.Name, Driver: i.Driver, MemoryBytes: i.MemoryBytes}
}
