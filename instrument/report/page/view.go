package page

import (
	"cmp"
	"fmt"
	"html/template"
	"strconv"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

// pageView is what the page's template shows.
type pageView struct {
	Rules            string
	Style            template.CSS
	Library, Program template.JS
	Data             template.JS

	Title       string
	Report      *report.Report
	Failures    []failureView
	Headline    string
	Findings    []findingView
	Inferred    bool // some categories are
	Device      string
	Settings    []report.Setting
	Summary     string // of the checks
	Fails       bool   // one of them
	Checks      []checkView
	Categories  []string // those that a run uses, in stacking order
	Runs        []runView
	Timelines   []timelineView
	Explanation []string
}

// failureView is a run that ran out of memory.
type failureView struct {
	Title, Text string
	Notes       []string
}

type findingView struct {
	report.Finding
	Heading string
	Amount  string
	// Shows says that the page has the event At, in the timeline of Index.
	Shows bool
	Index int
	At    int64

	AtText string
}

type checkView struct {
	report.Check
	Expected, Observed string
}

type timelineView struct {
	Index int
	Name  string
	Basis report.Basis
	Notes []string
}

// amountView is bytes as a table of the page shows them: in the unit and exactly.
type amountView struct{ Amount, Exact string }

type runView struct {
	*report.Run
	Index      int
	Count      string // parameters
	Notes      []string
	Unit       string
	Where      string
	Allocated  amountView
	Reserved   amountView
	Categories []categoryView
	Phases     []phaseView
	Hidden     int        // phases not shown
	Steps      []stepView // empty when no step has a time or a loss
	Marks      []markView
}

type stepView struct{ Step, Loss, Seconds string }

type categoryView struct {
	Name   string
	Amount amountView
	Share  string
}

type phaseView struct {
	Step, Name, Error string
	// StartAllocated, StartReserved, PeakAllocated and so on.
	Amounts [6]amountView
	Seconds string
}

// stackingOrder is the place of each category in instrument.Categories.
var stackingOrder = func() (order [instrument.NumCategories]int) {
	for i, c := range instrument.Categories() {
		order[c] = i
	}
	return order
}()

type markView struct {
	Name                string
	Allocated, Reserved amountView
}

// pagePhaseRows is how many phases, and how many steps, the page's tables of a
// run show; report.json has all.
const pagePhaseRows = 400

func (p Page) view(histories []*report.History) (*pageView, error) {
	r := p.Report
	settings, err := report.Flatten(r.Settings)
	if err != nil {
		return nil, err
	}
	v := &pageView{Title: "tidemark: " + show.Quote(r.Scenario) + " on " + r.Device.Kind, Report: r, Headline: r.FirstLine(),
		Device: r.Device.Describe(r.Precision), Settings: settings, Explanation: p.Explanation}
	for _, c := range r.Checks {
		observed := "not measured"
		switch {
		case c.NotJudged != "":
			observed = "not judged: " + c.NotJudged
		case c.Observed != nil:
			observed = show.Value(c.Observed, c.Unit)
		}
		v.Checks = append(v.Checks, checkView{c, show.Value(c.Expected, c.Unit), observed})
	}
	v.Summary, v.Fails = report.Summary(r.Checks), !r.Holds()
	for i := range r.Runs {
		if f := r.Runs[i].OOM; f != nil {
			v.Failures = append(v.Failures, failureView{r.Runs[i].Name + " " + f.Title(), f.Text(), f.Notes})
		}
		v.Runs = append(v.Runs, newRunView(i, &r.Runs[i]))
	}
	for _, f := range r.Findings {
		v.Findings = append(v.Findings, p.finding(f, histories))
	}
	used := map[instrument.Category]bool{}
	for i, rec := range p.Recordings {
		t := timelineView{Index: i, Name: rec.Name}
		if run := p.run(i); run != nil {
			t.Basis = run.Basis
		}
		v.Timelines = append(v.Timelines, t)
		v.Inferred = v.Inferred || histories[i].CategoryBasis == report.Inferred
		for _, l := range histories[i].Labels {
			used[l.Category] = true
		}
	}
	for _, c := range instrument.Categories() {
		if used[c] {
			v.Categories = append(v.Categories, c.String())
		}
	}
	return v, nil
}

// finding looks for the timeline in which a finding can be seen.
func (p Page) finding(f report.Finding, histories []*report.History) findingView {
	v := findingView{Finding: f, Heading: cmp.Or(f.Title, f.Kind)}
	if f.Bytes != 0 {
		v.Amount = show.Bytes(f.Bytes, false)
	}
	if f.Event == nil {
		return v
	}
	for i, h := range histories {
		if (f.Run == "" || f.Run == p.Recordings[i].Name) && h.First <= *f.Event && *f.Event < h.End {
			v.Shows, v.Index, v.At, v.AtText = true, i, *f.Event, show.Grouped(*f.Event)
			break
		}
	}
	return v
}

func newRunView(index int, r *report.Run) runView {
	most := int64(0)
	if r.Peak != nil {
		most = max(r.Peak.AllocatedBytes, r.Peak.ReservedBytes)
	}
	u := show.UnitFor(most)
	amount := func(n int64) amountView {
		text := u.Format(n, 3)
		if text == "0.000" && n != 0 {
			text = "<0.001"
		}
		return amountView{text, show.Grouped(n)}
	}
	v := runView{Run: r, Index: index, Count: show.Absent, Unit: u.Name}
	if r.Parameters > 0 {
		v.Count = show.Grouped(r.Parameters)
	}
	for _, a := range r.Assumptions {
		v.Notes = append(v.Notes, a.String())
	}
	if r.EventsDropped > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("%s of %s events, the oldest, were not kept; peaks and phases are complete",
			show.Grouped(r.EventsDropped), show.Grouped(r.Events)))
	}
	if p := r.Peak; p != nil {
		v.Allocated, v.Reserved, v.Where = amount(p.AllocatedBytes), amount(p.ReservedBytes), p.Where()
		for _, c := range instrument.Categories() {
			if n := p.ByCategory[c]; n != 0 {
				v.Categories = append(v.Categories, categoryView{c.String(), amount(n), show.Share(n, p.AllocatedBytes)})
			}
		}
	}
	queued := false
	row := func(step string, p *report.Phase) {
		queued = queued || p.Timing == report.Queued
		if len(v.Phases) == pagePhaseRows {
			v.Hidden++
			return
		}
		pv := phaseView{Step: step, Name: p.Phase, Error: p.Error, Seconds: show.Seconds(p.Seconds)}
		pv.Amounts = [6]amountView{amount(p.Start.AllocatedBytes), amount(p.Start.ReservedBytes),
			amount(p.Peak.AllocatedBytes), amount(p.Peak.ReservedBytes), {Amount: show.Absent}, {Amount: show.Absent}}
		if p.End != nil {
			pv.Amounts[4], pv.Amounts[5] = amount(p.End.AllocatedBytes), amount(p.End.ReservedBytes)
		}
		v.Phases = append(v.Phases, pv)
	}
	for i := range r.Phases {
		row(show.Absent, &r.Phases[i])
	}
	for _, s := range r.Steps {
		if (s.Loss != nil || s.Seconds != nil) && len(v.Steps) < pagePhaseRows {
			step := stepView{strconv.Itoa(s.Step), show.Absent, show.Seconds(s.Seconds)}
			if s.Loss != nil {
				step.Loss = strconv.FormatFloat(float64(*s.Loss), 'g', 8, 64)
			}
			v.Steps = append(v.Steps, step)
		}
		for i := range s.Phases {
			row(strconv.Itoa(s.Step), &s.Phases[i])
		}
	}
	if queued {
		v.Notes = append(v.Notes, "a step's phases were timed by the device, by events in its queue")
	}
	for _, m := range r.Marks {
		v.Marks = append(v.Marks, markView{m.Name, amount(m.AllocatedBytes), amount(m.ReservedBytes)})
	}
	return v
}
