package explain

import (
	"cmp"
	"slices"
	"sort"
)

// Annotated is a part of the history that the program has named.
type Annotated struct {
	Name    string     `json:"name"`
	Event   EventRange `json:"events"`
	Seconds float64    `json:"seconds"`
	Start   Usage      `json:"start"`
	Peak    Usage      `json:"peak"` // the highest of each counter
	End     Usage      `json:"end"`
}

// annotations are the named parts of the device's history. One that does not
// end is left out.
func (a *Analysis) annotations() []Annotated {
	list := []Annotated{}
	trace := a.h.Trace
	at := func(micros int64) int {
		return sort.Search(len(trace), func(i int) bool { return trace[i].TimeMicros >= micros })
	}
	open := map[string][]int64{} // of each name, the innermost last
	for _, m := range a.snapshot.Annotations {
		starts := open[m.Name]
		switch {
		case m.Device != a.h.Device:
		case m.Stage == "START":
			open[m.Name] = append(starts, m.TimeMicros)
		case len(starts) > 0:
			began := starts[len(starts)-1]
			open[m.Name] = starts[:len(starts)-1]
			first, end := at(began), at(m.TimeMicros+1)
			n := Annotated{Name: m.Name, Event: EventRange{first, end}, Seconds: float64(m.TimeMicros-began) / 1e6, Start: a.usage(first - 1), End: a.usage(end - 1)}
			n.Peak = n.Start
			for i := first; i < end; i++ {
				n.Peak = Usage{max(n.Peak.AllocatedBytes, a.h.Allocated[i]), max(n.Peak.ReservedBytes, a.h.Reserved[i])}
			}
			list = append(list, n)
		}
	}
	slices.SortStableFunc(list, func(x, y Annotated) int { return cmp.Compare(x.Event.First, y.Event.First) })
	return list
}
