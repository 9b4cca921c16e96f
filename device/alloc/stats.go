package alloc

// Stat is a figure now and the highest it was since the last ResetPeak.
type Stat struct {
	Current int64 `json:"current"`
	Peak    int64 `json:"peak"`
}

func (s *Stat) add(n int64) {
	s.Current += n
	if s.Current > s.Peak {
		s.Peak = s.Current
	}
}

// Stats is the allocator's counters under the names of PyTorch's memory_stats.
// All but Segments, NumAllocRetries and NumOOMs are bytes.
type Stats struct {
	Allocated     Stat `json:"allocated_bytes"`      // blocks in use
	Reserved      Stat `json:"reserved_bytes"`       // segments and mapped pages
	Active        Stat `json:"active_bytes"`         // blocks in use or pending free
	Requested     Stat `json:"requested_bytes"`      // what active blocks were asked for
	InactiveSplit Stat `json:"inactive_split_bytes"` // free blocks that share a segment; expandable segments excluded
	Segments      Stat `json:"segments"`             // count; expandable segments excluded

	NumAllocRetries int64 `json:"num_alloc_retries"`
	NumOOMs         int64 `json:"num_ooms"`
}

// Stats returns the counters.
func (a *Allocator) Stats() Stats { return a.stats }

// ResetPeak makes every peak the current figure.
func (a *Allocator) ResetPeak() {
	s := &a.stats
	for _, p := range []*Stat{&s.Allocated, &s.Reserved, &s.Active, &s.Requested, &s.InactiveSplit, &s.Segments} {
		p.Peak = p.Current
	}
}
