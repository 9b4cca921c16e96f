package scenarios

import (
	"math"

	"github.com/tidemark-lab/tidemark/instrument/report"
)

// checker adds the checks of one run to an outcome.
type checker struct {
	out   *Outcome
	basis report.Basis
	// run names the run; it goes before the names of the checks.
	run string
}

func (c checker) add(k report.Check) {
	if c.run != "" {
		k.Name = c.run + " " + k.Name
	}
	k.Basis = c.basis
	c.out.Report.Checks = append(c.out.Report.Checks, k)
}

// bytes checks that two numbers of bytes are equal.
func (c checker) bytes(name, source, claim string, expected, observed int64) {
	c.add(report.Check{Name: name, Source: source, Claim: claim, Unit: "bytes",
		Expected: expected, Observed: observed, Holds: expected == observed})
}

// near checks that two numbers of bytes differ by at most a part of the
// expected one.
func (c checker) near(name, source, claim string, expected, observed int64, part float64) {
	c.add(report.Check{Name: name, Source: source, Claim: claim, Unit: "bytes", Expected: expected, Observed: observed,
		Holds: math.Abs(float64(observed-expected)) <= part*float64(expected)})
}

// below checks that a number of bytes is below a bound.
func (c checker) below(name, source, claim string, bound, observed int64) {
	c.add(report.Check{Name: name, Source: source, Claim: claim, Unit: "bytes",
		Expected: bound, Observed: observed, Holds: observed < bound})
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
