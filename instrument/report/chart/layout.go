package chart

import (
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot/vg"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

// layout is where a panel's parts go. Heights are in points; x positions count
// from the plot's left edge.
type layout struct {
	*Panel
	marks  []mark
	rows   int // of mark labels
	hidden int // marks whose label found no room
	// phases are those not inside of others.
	phases   []span
	steps    []span
	every    int       // how many steps share a label
	vertical bool      // phase names run upwards
	strip    vg.Length // height of the strip of phase names
}

// mark is where the marks of one moment are labelled.
type mark struct {
	x     vg.Length
	label string
	row   int // 0 is the lowest; -1 has no label
}

// span is a phase or step.
type span struct {
	name   string
	from   vg.Length
	to     vg.Length
	failed bool
}

var (
	markStyle  = plain(8)
	phaseStyle = plain(8)
	stepStyle  = faint(8)
)

const maxMarkRows = 4

func newLayout(p *Panel) *layout {
	l := &layout{Panel: p}
	if len(p.Series.Columns) == 0 {
		return l
	}
	l.placeMarks()
	l.placeSpans()
	return l
}

func (l *layout) height() vg.Length {
	h := panelTitle + vg.Length(l.rows)*markRow + l.strip + plotHeight + axisHeight
	if len(l.steps) > 0 {
		h += stepStrip
	}
	return h
}

// x is the place of a moment: that before the event at a position, or a time.
func (l *layout) x(event int64, at time.Duration) vg.Length {
	s := &l.Series
	f := 0.0
	if s.Axis == instrument.ByTime {
		f = float64(at-s.Began) / float64(s.Ended-s.Began)
	} else {
		f = float64(event-s.FirstEvent) / float64(s.EndEvent-s.FirstEvent)
	}
	return vg.Length(min(max(f, 0), 1) * plotWidth)
}

// placeMarks joins the labels of marks at one place, and puts each label, which
// begins at its mark's line, above all labels that begin within it: so no line
// runs through a label.
func (l *layout) placeMarks() {
	for _, m := range l.Marks {
		if m.Event < l.Series.FirstEvent {
			continue // its moment is not in the series
		}
		x := l.x(m.Event, m.Time)
		if n := len(l.marks); n > 0 && x-l.marks[n-1].x < 1 {
			if label := &l.marks[n-1].label; len(*label) < mostLabel {
				*label += ", " + m.Name
			}
			continue
		}
		l.marks = append(l.marks, mark{x: x, label: m.Name})
	}
	for i, m := range slices.Backward(l.marks) {
		// A joined label can be long.
		l.marks[i].label = fit(m.label, markStyle, plotWidth+rightMargin-outerMargin-m.x)
		end := m.x + markStyle.Width(l.marks[i].label) + 6
		for _, right := range l.marks[i+1:] {
			if right.x < end && right.row >= 0 {
				l.marks[i].row = max(l.marks[i].row, right.row+1)
			}
		}
		if l.marks[i].row >= maxMarkRows || l.marks[i].label == "" {
			l.marks[i].row = -1
			l.hidden++
		}
		l.rows = max(l.rows, l.marks[i].row+1)
	}
}

// fit cuts the end of a text off until it is no wider than the room.
func fit(s string, sty textStyle, room vg.Length) string {
	if len(s) <= mostLabel && sty.Width(s) <= room {
		return s
	}
	runes := []rune(show.Quote(s[:min(len(s), mostLabel)]))
	cut := func(n int) string { return strings.TrimRight(string(runes[:n]), " ,") + "…" }
	// The longest that has room: width grows with length.
	n := sort.Search(len(runes), func(n int) bool { return sty.Width(cut(n+1)) > room })
	if n == 0 {
		return ""
	}
	return cut(n)
}

// placeSpans decides how phase names are written: across where all of them
// fit, else upwards.
func (l *layout) placeSpans() {
	for _, p := range l.Phases {
		if p.Depth > 0 || p.EndEvent <= l.Series.FirstEvent && p.Finished {
			continue
		}
		end := p.EndEvent
		if !p.Finished {
			end, p.Ended = l.Series.EndEvent, l.Series.Ended
		}
		s := span{name: p.Name, from: l.x(p.FirstEvent, p.Began), to: l.x(end, p.Ended), failed: p.Error != ""}
		if s.failed {
			s.name += " (failed)"
		} else if s.to-s.from < 0.5 {
			continue // nothing was allocated or freed
		}
		l.phases = append(l.phases, s)
		l.vertical = l.vertical || phaseStyle.Width(s.name)+4 > s.to-s.from
	}
	if len(l.phases) > 0 {
		l.strip = 14
	}
	if l.vertical {
		for i := range l.phases {
			if name := l.phases[i].verticalName(); name != "" {
				l.strip = max(l.strip, phaseStyle.Width(name)+8)
			}
		}
	}
	l.placeSteps()
}

// placeSteps decides which steps have labels: 1 in 1, 2, 5, 10 and so on, so
// that a label ends before the next begins.
func (l *layout) placeSteps() {
	for i, s := range l.Panel.Steps {
		// A step reaches to the next one, so that the strip has no holes.
		to := l.x(s.EndEvent, s.Ended)
		if i+1 < len(l.Panel.Steps) {
			next := &l.Panel.Steps[i+1]
			to = l.x(next.FirstEvent, next.Began)
		}
		if from := l.x(s.FirstEvent, s.Began); to > from {
			l.steps = append(l.steps, span{name: "step " + strconv.Itoa(s.Step), from: from, to: to})
		}
	}
	for i := 0; ; i++ {
		l.every = []int{1, 2, 5}[i%3] * int(math.Pow10(i/3))
		if l.stepsFit() {
			return
		}
	}
}

func (l *layout) stepsFit() bool {
	end := vg.Length(0)
	for i := 0; i < len(l.steps); i += l.every {
		if l.steps[i].from < end {
			return false
		}
		end = l.steps[i].from + stepStyle.Width(l.steps[i].name) + 7
	}
	return true
}

// verticalName is a phase's name written upwards, empty where even that has
// no room, and cut if it is very long.
func (s span) verticalName() string {
	if s.to-s.from < 9 {
		return ""
	}
	return fit(s.name, phaseStyle, 70)
}
