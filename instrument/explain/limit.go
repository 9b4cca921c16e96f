package explain

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/instrument/snapshot/replay"
)

// Limit is the history replayed with less memory.
type Limit struct {
	LimitBytes int64 `json:"limit_bytes"`
	Fits       bool  `json:"fits"`
	// What did not fit, where the history does not.
	Event          int     `json:"event,omitempty"`
	Time           float64 `json:"time,omitempty"`
	RequestedBytes int64   `json:"requested_bytes,omitempty"`
	Line           string  `json:"line,omitempty"`
	Error          string  `json:"error,omitempty"` // why it could not be replayed
}

// limit replays the history under the limit that was asked about.
func (a *Analysis) limit() *Limit {
	if a.options.LimitBytes <= 0 {
		return nil
	}
	l := &Limit{LimitBytes: a.options.LimitBytes}
	r, err := replay.Run(a.snapshot, replay.Options{Device: &a.h.Device, LimitBytes: l.LimitBytes})
	switch {
	case err != nil:
		l.Error = err.Error()
	case r.Stopped:
		l.Event = r.OOMs[len(r.OOMs)-1].Index
		l.Time, l.RequestedBytes, l.Line = a.seconds(l.Event), a.h.Trace[l.Event].Bytes, a.name(a.h.Facts(l.Event).Line)
		if l.Line == "" && a.h.BlockOf[l.Event] >= 0 {
			line, _ := a.lineOf(&a.h.Blocks[a.h.BlockOf[l.Event]])
			l.Line = a.name(line)
		}
	default:
		l.Fits = true
	}
	return l
}

// limit says whether the history would have fitted.
func (e *evidence) limit() *Finding {
	l := e.report.Limit
	switch {
	case l == nil || l.Error != "":
		return nil
	case l.Fits:
		return &Finding{Kind: "fits", Bytes: l.LimitBytes, rank: rankBackground,
			Title:  fmt.Sprintf("Replayed with a limit of %s, the history fits.", size(l.LimitBytes)),
			Remedy: "None is needed for this limit."}
	}
	blocks := e.h.AliveAt(l.Event - 1)
	f := &Finding{Kind: "does_not_fit", Bytes: l.RequestedBytes, Line: e.mainSite(blocks), rank: rankFailure}
	f.Title = fmt.Sprintf("Replayed with a limit of %s, it runs out of memory %.3f s into the history: %s are asked for at %s.",
		size(l.LimitBytes), l.Time, size(l.RequestedBytes), at(l.Line))
	f.Reasons = e.lines(blocks, 4)
	f.Remedy = "What the findings below say takes less memory; the largest first."
	return f
}
