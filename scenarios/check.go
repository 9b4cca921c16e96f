package scenarios

import (
	"fmt"
	"math"

	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

// checker adds the checks of one run to an outcome.
type checker struct {
	out *Outcome
	// basis is what the observed values rest on.
	basis report.Basis
	// run names the run; it goes before the names of the checks.
	run string
}

// calculated is a checker of values that were calculated, whatever the device.
func (c checker) calculated() checker {
	c.basis = report.Calculated
	return c
}

func (c checker) add(k report.Check) {
	if c.run != "" {
		k.Name = c.run + " " + k.Name
	}
	k.Basis = c.basis
	c.out.Report.Checks = append(c.out.Report.Checks, k)
}

// open adds a check that cannot be judged, and why.
func (c checker) open(name, source, claim, why string) {
	c.add(report.Check{Name: name, Source: source, Claim: claim, NotJudged: why})
}

// bytes checks that two numbers of bytes are equal.
func (c checker) bytes(name, source, claim string, expected, observed int64) {
	c.count(name, source, claim, "bytes", expected, observed)
}

// near checks that two numbers of bytes differ by at most a part of the
// expected one, which the claim names.
func (c checker) near(name, source, claim string, expected, observed int64, part float64) {
	c.add(report.Check{Name: name, Source: source, Claim: claim, Unit: "bytes", Expected: expected, Observed: observed,
		Holds: expected > 0 && math.Abs(float64(observed-expected)) <= part*float64(expected)})
}

// below checks that a number of bytes is below a bound, and more than nothing.
func (c checker) below(name, source, claim string, bound, observed int64) {
	c.add(report.Check{Name: name, Source: source, Claim: claim,
		Expected: fmt.Sprintf("more than 0 and less than %s bytes", show.Grouped(bound)), Observed: show.Grouped(observed) + " bytes",
		Holds: observed > 0 && observed < bound})
}

// atMost checks that a number of bytes is no greater than a bound, and more
// than nothing.
func (c checker) atMost(name, source, claim string, bound, observed int64) {
	c.add(report.Check{Name: name, Source: source, Claim: claim,
		Expected: fmt.Sprintf("more than 0 and at most %s bytes", show.Grouped(bound)), Observed: show.Grouped(observed) + " bytes",
		Holds: observed > 0 && observed <= bound})
}

// count checks that two numbers are equal.
func (c checker) count(name, source, claim, unit string, expected, observed int64) {
	c.add(report.Check{Name: name, Source: source, Claim: claim, Unit: unit,
		Expected: expected, Observed: observed, Holds: expected == observed})
}

// that checks what the caller has compared.
func (c checker) that(name, source, claim string, expected, observed any, holds bool) {
	c.add(report.Check{Name: name, Source: source, Claim: claim, Expected: expected, Observed: observed, Holds: holds})
}

// asCalculated checks that the allocator's events were those that the meta
// device calculates.
func (c checker) asCalculated(expected, observed digest) {
	c.that("events as calculated", "", "Every event of the allocator, with allocated and reserved bytes, is as calculated on the meta device",
		expected.String(), observed.String(), expected == observed)
}
