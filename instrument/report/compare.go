package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/instrument"
)

// Comparison is two reports side by side. A value that one of them does not
// have is nil.
type Comparison struct {
	A Compared `json:"a"`
	B Compared `json:"b"`
	// SameSettings counts the settings that agree; Settings are those that
	// differ, in A's order and then B's.
	SameSettings int             `json:"same_settings"`
	Settings     []SettingChange `json:"settings"`
	Runs         []RunComparison `json:"runs"`
	Checks       []CheckCompared `json:"checks"`
}

// Compared says which report it is.
type Compared struct {
	File     string `json:"file"`
	Tidemark string `json:"tidemark"`
	Scenario string `json:"scenario"`
	Device   Device `json:"device"`
	// Precision is Report.Precision.
	Precision precision.Precision `json:"precision,omitempty"`
}

// SettingChange is a setting that differs; nested ones have a path for a name.
type SettingChange struct {
	Name string  `json:"name"`
	A    *string `json:"a"`
	B    *string `json:"b"`
}

// RunComparison is a run of each report. A run without a counterpart stands
// alone.
type RunComparison struct {
	A *ComparedRun `json:"a"`
	B *ComparedRun `json:"b"`
	// By is how the two were matched: "name", or "position" when neither has a
	// counterpart of its name. Empty for a run that stands alone.
	By string `json:"matched_by,omitempty"`
	// Allocated and Reserved are the two peaks, which need not be simultaneous
	// and are never added. They are nil when neither run allocated anything.
	Allocated *Change `json:"peak_allocated"`
	Reserved  *Change `json:"peak_reserved"`
	// Categories are those in use at either allocated peak, in stacking order.
	Categories []CategoryChange `json:"categories"`
	Phases     []PhaseChange    `json:"phases"`
	Marks      []MarkChange     `json:"marks"`
	// Seconds is the time of all timed steps together.
	Seconds *TimeChange `json:"seconds"`
}

// ComparedRun is what is said of one of the runs.
type ComparedRun struct {
	Name       string `json:"name"`
	Basis      Basis  `json:"basis"`
	Parameters int64  `json:"parameters"`
	PeakIn     string `json:"peak_in,omitempty"` // step and phase of the allocated peak
}

// Change is bytes in A and in B.
type Change struct {
	ABytes     *int64 `json:"a_bytes"`
	BBytes     *int64 `json:"b_bytes"`
	DeltaBytes *int64 `json:"delta_bytes"` // B less A; nil unless both are there
	// Percent is the change in percent of A, nil also when A is nothing beside B:
	// 0, or less than a thousandth of it.
	Percent *float64 `json:"percent"`
}

// TimeChange is seconds in A and in B.
type TimeChange struct {
	A       *float64 `json:"a"`
	B       *float64 `json:"b"`
	Percent *float64 `json:"percent"`
}

// CategoryChange is a category's part of the allocated peaks.
type CategoryChange struct {
	Category instrument.Category `json:"category"`
	Change
}

// PhaseChange is a phase's two peaks. Phases are matched by the number of their
// step and their name, the second of a name in a step with the second.
type PhaseChange struct {
	Step      *int        `json:"step"` // nil outside of any step
	Phase     string      `json:"phase"`
	Allocated Change      `json:"peak_allocated"`
	Reserved  Change      `json:"peak_reserved"`
	Seconds   *TimeChange `json:"seconds"`
}

// MarkChange is the two figures at a mark, matched as phases are.
type MarkChange struct {
	Name      string `json:"name"`
	Allocated Change `json:"allocated"`
	Reserved  Change `json:"reserved"`
}

// CheckCompared is the outcome of a check in both reports, matched by name.
type CheckCompared struct {
	Name string `json:"name"`
	// A and B are nil where a report lacks the check or did not judge it; the
	// reasons for the latter follow.
	A          *bool  `json:"a_holds"`
	B          *bool  `json:"b_holds"`
	ANotJudged string `json:"a_not_judged,omitempty"`
	BNotJudged string `json:"b_not_judged,omitempty"`
	// AObserved and BObserved are what the checks found.
	AObserved any    `json:"a_observed"`
	BObserved any    `json:"b_observed"`
	Unit      string `json:"unit,omitempty"`
}

// Compare sets two reports side by side, read from the files of the given
// names.
func Compare(a, b *Report, fileA, fileB string) (*Comparison, error) {
	c := &Comparison{A: compared(a, fileA), B: compared(b, fileB), Settings: []SettingChange{}, Runs: []RunComparison{}, Checks: []CheckCompared{}}
	if err := c.compareSettings(a.Settings, b.Settings); err != nil {
		return nil, err
	}
	for _, m := range matchRuns(a.Runs, b.Runs) {
		c.Runs = append(c.Runs, compareRuns(m))
	}
	pairs(len(a.Checks), len(b.Checks), func(i int) string { return a.Checks[i].Name }, func(i int) string { return b.Checks[i].Name },
		func(i, j int) {
			var check CheckCompared
			if i >= 0 {
				v := a.Checks[i]
				check.Name, check.Unit, check.AObserved, check.ANotJudged = v.Name, v.Unit, v.Observed, v.NotJudged
				if v.NotJudged == "" {
					check.A = &v.Holds
				}
			}
			if j >= 0 {
				v := b.Checks[j]
				check.Name, check.Unit, check.BObserved, check.BNotJudged = v.Name, v.Unit, v.Observed, v.NotJudged
				if v.NotJudged == "" {
					check.B = &v.Holds
				}
			}
			c.Checks = append(c.Checks, check)
		})
	return c, nil
}

func compared(r *Report, file string) Compared {
	return Compared{File: file, Tidemark: r.Tidemark, Scenario: r.Scenario, Device: r.Device, Precision: r.Precision}
}

func (c *Comparison) compareSettings(a, b any) error {
	listA, err := Flatten(a)
	if err != nil {
		return fmt.Errorf("%s: %w", c.A.File, err)
	}
	listB, err := Flatten(b)
	if err != nil {
		return fmt.Errorf("%s: %w", c.B.File, err)
	}
	pairs(len(listA), len(listB), func(i int) string { return listA[i].Name }, func(i int) string { return listB[i].Name },
		func(i, j int) {
			var s SettingChange
			if i >= 0 {
				s.Name, s.A = listA[i].Name, &listA[i].Value
			}
			if j >= 0 {
				s.Name, s.B = listB[j].Name, &listB[j].Value
			}
			if s.A != nil && s.B != nil && *s.A == *s.B {
				c.SameSettings++
				return
			}
			c.Settings = append(c.Settings, s)
		})
	return nil
}

// most is the greatest growth in percent that is said of a number.
const most = 100_000

// Most is the greater of the two, 0 where there is neither.
func (c Change) Most() (most int64) {
	for _, n := range []*int64{c.ABytes, c.BBytes} {
		if n != nil {
			most = max(most, *n)
		}
	}
	return most
}

// newChange is a change of which either side may be missing.
func newChange(a, b *int64) Change {
	c := Change{ABytes: a, BBytes: b}
	if a != nil && b != nil {
		delta := *b - *a
		c.DeltaBytes = &delta
		if percent := 100 * float64(delta) / float64(*a); *a != 0 && percent <= most {
			c.Percent = &percent
		}
	}
	return c
}

// newTimeChange is nil when neither side was timed.
func newTimeChange(a, b *float64) *TimeChange {
	if a == nil && b == nil {
		return nil
	}
	t := &TimeChange{A: a, B: b}
	if a != nil && b != nil && *a != 0 {
		if percent := 100 * (*b - *a) / *a; percent <= most {
			t.Percent = &percent
		}
	}
	return t
}

// WriteJSON writes the comparison as indented JSON with a final newline.
func (c *Comparison) WriteJSON(w io.Writer) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(c); err != nil {
		return fmt.Errorf("comparison as JSON: %w", err)
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	return nil
}

// pairs calls f with the places of entries that have one name, the second of a
// name with the second, in the order of the first list; then with what only the
// second list has. A missing place is -1.
func pairs(n, m int, nameA, nameB func(int) string, f func(i, j int)) {
	places := map[string]int{}
	seen := map[string]int{}
	key := func(name string) string {
		seen[name]++
		return name + "\x00" + strconv.Itoa(seen[name])
	}
	for j := range m {
		places[key(nameB(j))] = j
	}
	clear(seen)
	used := make([]bool, m)
	for i := range n {
		j, ok := places[key(nameA(i))]
		if !ok {
			j = -1
		} else {
			used[j] = true
		}
		f(i, j)
	}
	for j := range m {
		if !used[j] {
			f(-1, j)
		}
	}
}
