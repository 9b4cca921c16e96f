package harness

import (
	"fmt"
	"math"

	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

// Checker adds the checks of one run to an outcome.
type Checker struct {
	Out *Outcome
	// Basis is what the observed values rest on.
	Basis report.Basis
	// Run names the run; it goes before the names of the checks.
	Run string
}

// Calculated is a checker of values that were calculated, whatever the device.
func (c Checker) Calculated() Checker {
	c.Basis = report.Calculated
	return c
}

func (c Checker) add(k report.Check) {
	if c.Run != "" {
		k.Name = c.Run + " " + k.Name
	}
	k.Basis = c.Basis
	c.Out.Report.Checks = append(c.Out.Report.Checks, k)
}

// Open adds a check that cannot be judged, and why.
func (c Checker) Open(name, source, claim, why string) {
	c.add(report.Check{Name: name, Source: source, Claim: claim, NotJudged: why})
}

// Bytes checks that two numbers of bytes are equal.
func (c Checker) Bytes(name, source, claim string, expected, observed int64) {
	c.Count(name, source, claim, "bytes", expected, observed)
}

// Near checks that two numbers of bytes differ by at most a part of the
// expected one, which the claim names.
func (c Checker) Near(name, source, claim string, expected, observed int64, part float64) {
	c.add(report.Check{Name: name, Source: source, Claim: claim, Unit: "bytes", Expected: expected, Observed: observed,
		Holds: expected > 0 && math.Abs(float64(observed-expected)) <= part*float64(expected)})
}

// Below checks that a number of bytes is below a bound, and more than nothing.
func (c Checker) Below(name, source, claim string, bound, observed int64) {
	c.add(report.Check{Name: name, Source: source, Claim: claim,
		Expected: fmt.Sprintf("more than 0 and less than %s bytes", show.Grouped(bound)), Observed: show.Grouped(observed) + " bytes",
		Holds: observed > 0 && observed < bound})
}

// AtMost checks that a number of bytes is no greater than a bound, and more
// than nothing.
func (c Checker) AtMost(name, source, claim string, bound, observed int64) {
	c.add(report.Check{Name: name, Source: source, Claim: claim,
		Expected: fmt.Sprintf("more than 0 and at most %s bytes", show.Grouped(bound)), Observed: show.Grouped(observed) + " bytes",
		Holds: observed > 0 && observed <= bound})
}

// Count checks that two numbers are equal.
func (c Checker) Count(name, source, claim, unit string, expected, observed int64) {
	c.add(report.Check{Name: name, Source: source, Claim: claim, Unit: unit,
		Expected: expected, Observed: observed, Holds: expected == observed})
}

// That checks what the caller has compared.
func (c Checker) That(name, source, claim string, expected, observed any, holds bool) {
	c.add(report.Check{Name: name, Source: source, Claim: claim, Expected: expected, Observed: observed, Holds: holds})
}

// AsCalculated checks that the allocator's events were those that the meta
// device calculates.
func (c Checker) AsCalculated(expected, observed Digest) {
	c.That("events as calculated", "", "Every event of the allocator, with allocated and reserved bytes, is as calculated on the meta device",
		expected.String(), observed.String(), expected == observed)
}
