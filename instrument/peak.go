package instrument

import (
	"cmp"
	"slices"
	"time"
)

// NoStep stands for the number of a step outside of any step.
const NoStep = -1

// Peak is the state at the greatest allocated bytes of a recording.
type Peak struct {
	// Usage holds the two peaks, which need not be simultaneous, and the
	// categories at the allocated one.
	Usage
	// ReservedThenBytes is what was reserved at the allocated peak.
	ReservedThenBytes int64
	// Step and Phase say where the allocated peak was: NoStep and empty outside
	// of any. Phase is the innermost that was running.
	Step  int
	Phase string
	// Event is the position of the event that reached the allocated peak, -1
	// if nothing was ever allocated.
	Event int64
	Time  time.Duration
}

// raisePeaks compares the present with the peaks of the recording and of the
// phases that are running.
func (r *Recorder) raisePeaks(at time.Duration) {
	for _, i := range r.inside {
		r.phases[i].Peak.raise(&r.now)
	}
	if r.now.AllocatedBytes > r.peak.AllocatedBytes {
		r.peak.ReservedThenBytes = r.now.ReservedBytes
		r.peak.Event, r.peak.Time = r.ring.end-1, at
		r.peak.Step, r.peak.Phase = r.where()
		r.epoch++
	}
	if r.now.ReservedBytes > r.peak.ReservedBytes {
		r.reserved.Usage, r.reserved.Event = r.now, r.ring.end-1
		r.reserved.Step, r.reserved.Phase = r.where()
	}
	r.peak.raise(&r.now)
}

// ReservedPeak is the moment of a recording's greatest reserved bytes, the
// first if there were several.
type ReservedPeak struct {
	// Usage is both figures and the categories of that moment.
	Usage
	// Step and Phase are as in Peak.
	Step  int
	Phase string
	// Event is the position of the event that reached it, -1 if it was there
	// when the recording began.
	Event int64
}

// PeakReserved is the moment of the greatest reserved bytes, kept whatever the
// ring dropped.
func (r *Recorder) PeakReserved() ReservedPeak { return r.reserved }

// where is the present step and innermost phase.
func (r *Recorder) where() (step int, phase string) {
	step = NoStep
	if n := len(r.steps); n > 0 && r.steps[n-1].open {
		step = r.steps[n-1].Step
	}
	if n := len(r.inside); n > 0 {
		phase = r.phases[r.inside[n-1]].Name
	}
	return step, phase
}

// Peak is the peak of the whole recording, kept whatever the ring dropped.
func (r *Recorder) Peak() Peak {
	p := r.peak
	if p.AllocatedBytes == 0 {
		p.Event = -1
	}
	return p
}

// Holding is what one module's operation held in one category.
type Holding struct {
	Bytes    int64
	Blocks   int64
	Category Category
	Module   string
	Op       string
}

// Top lists what was in use at the allocated peak, grouped by category, module
// and operation, the largest first: at most n groups, or all when n is 0.
func (r *Recorder) Top(n int) []Holding {
	groups := map[Holding]Holding{}
	for tag := range r.held {
		h := &r.held[tag]
		bytes, blocks := h.bytes, h.blocks
		if h.epoch == r.epoch {
			bytes, blocks = h.peakBytes, h.peakBlocks
		}
		if blocks == 0 {
			continue
		}
		l := r.labels[tag]
		key := Holding{Category: l.Category, Module: l.Module, Op: l.Op}
		g, ok := groups[key]
		if !ok {
			g = key
		}
		g.Bytes += bytes
		g.Blocks += blocks
		groups[key] = g
	}
	list := make([]Holding, 0, len(groups))
	for _, g := range groups {
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b Holding) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Category, b.Category),
			cmp.Compare(a.Module, b.Module), cmp.Compare(a.Op, b.Op))
	})
	if n > 0 && n < len(list) {
		list = list[:n]
	}
	return list
}
