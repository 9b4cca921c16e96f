// Package page writes a report and its timelines as one HTML page.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"strings"
	"sync"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/instrument/report/chart"
	"github.com/tidemark-lab/tidemark/instrument/show"
)

// FileName is the name of the page in a run's folder.
const FileName = "report.html"

// Page is a report as one HTML file that needs no network: what the report
// says, and each recording's timeline to zoom into and to ask what was alive at
// a point. The timelines are drawn by uPlot, which the file carries.
type Page struct {
	Report *report.Report
	// Recordings are the timelines of Report.Runs.
	Recordings []Recording
	// Explanation is lines of text that say what happened and why.
	Explanation []string
	// MaxEvents is how many events the file carries for all recordings
	// together; 0 is DefaultPageEvents. Of a recording with more than its share
	// the page draws columns with their true maxima instead of single events,
	// and leaves out the blocks that were smallest and shortest-lived, but none
	// that was in use at the peak if the share allows it. The page says so.
	MaxEvents int
}

// Recording is the timeline of one run: its recorder, or a history from
// elsewhere.
type Recording struct {
	Name     string // that of the run in the report
	Recorder *instrument.Recorder
	History  *report.History // instead of Recorder
}

// history is the recording's.
func (r *Recording) history() (*report.History, error) {
	switch {
	case r.History != nil:
		if err := r.History.Check(); err != nil {
			return nil, fmt.Errorf("recording %q: %w", r.Name, err)
		}
		return r.History, nil
	case r.Recorder != nil:
		return report.RecordedHistory(r.Recorder), nil
	}
	return nil, fmt.Errorf("recording %q has no recorder and no history", r.Name)
}

// DefaultEvents is how many events a page carries unless told otherwise.
// They take about 6 MB.
const DefaultEvents = 400_000

//go:embed assets
var assets embed.FS

// asset is an embedded file.
func asset(name string) string {
	data, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // The files are part of the program.
	}
	return string(data)
}

// pageParts is what all pages have in common.
type pageParts struct {
	template                       *template.Template
	library, program, style, rules string
}

var loadParts = sync.OnceValue(func() pageParts {
	p := pageParts{
		template: template.Must(template.New("page").Funcs(template.FuncMap{"breakable": breakable, "quote": show.Quote}).Parse(asset("page.html"))),
		library:  "/*\n" + asset("uplot/LICENSE") + "*/\n" + asset("uplot/uPlot.iife.min.js"),
		program:  asset("timeline.js") + asset("chart.js") + asset("labels.js") + asset("alive.js") + asset("flame.js") + asset("segments.js") + asset("page.js"),
		style:    asset("uplot/uPlot.min.css") + asset("page.css") + categoryRules(),
	}
	// The browser is told to load nothing and to run these two scripts only.
	p.rules = fmt.Sprintf("default-src 'none'; style-src 'unsafe-inline'; script-src '%s' '%s'; base-uri 'none'; form-action 'none'",
		scriptHash(p.library), scriptHash(p.program))
	return p
})

func scriptHash(script string) string {
	sum := sha256.Sum256([]byte(script))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// categoryRules is the categories' colours as CSS variables.
func categoryRules() string {
	var out strings.Builder
	out.WriteString(":root{")
	for _, c := range instrument.Categories() {
		rgb := chart.CategoryColors[c]
		fmt.Fprintf(&out, "--category-%v:#%02x%02x%02x;", c, rgb.R, rgb.G, rgb.B)
	}
	out.WriteString("}")
	return out.String()
}

// WriteHTML writes the page. It fails when there is no report or when a
// recording has no recorder. A page without recordings shows the report alone.
func (p Page) WriteHTML(w io.Writer) error {
	if p.Report == nil {
		return errors.New("write page: there is no report")
	}
	histories := make([]*report.History, len(p.Recordings))
	for i := range p.Recordings {
		var err error
		if histories[i], err = p.Recordings[i].history(); err != nil {
			return fmt.Errorf("write page: %w", err)
		}
	}
	parts := loadParts()
	// Marshal writes <, > and & as \u003c and so on, so that nothing in the data
	// can end the script element that holds it.
	data, err := json.Marshal(p.data(histories))
	if err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	view, err := p.view(histories)
	if err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	view.Rules = parts.rules
	view.Style = template.CSS(parts.style)
	view.Library, view.Program = template.JS(parts.library), template.JS(parts.program)
	view.Data = template.JS(data)
	var out bytes.Buffer
	if err := parts.template.Execute(&out, view); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// run is the run of the report that a recording is the timeline of: the one at
// its place if the names agree, else the first of its name; nil if there is
// none.
func (p Page) run(i int) *report.Run {
	name := p.Recordings[i].Name
	if i < len(p.Report.Runs) && p.Report.Runs[i].Name == name {
		return &p.Report.Runs[i]
	}
	for j := range p.Report.Runs {
		if p.Report.Runs[j].Name == name {
			return &p.Report.Runs[j]
		}
	}
	return nil
}
