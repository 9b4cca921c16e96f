package instrument

import (
	"slices"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// Failure is a request for which the allocator found no memory.
type Failure struct {
	// RequestedBytes is the request after rounding.
	RequestedBytes int64
	// Usage is what was in use then.
	Usage
	// Step and Phase say where it was: NoStep and empty outside of any.
	Step  int
	Phase string
	Event int64 // the position
}

// Failures lists the requests that ran out of memory, kept whatever the ring
// dropped.
func (r *Recorder) Failures() []Failure { return slices.Clone(r.failures) }

// EndedOutOfMemory says whether nothing was allocated after the last failure.
func (r *Recorder) EndedOutOfMemory() bool {
	n := len(r.failures)
	return n > 0 && r.failures[n-1].Event > r.lastAlloc
}

// fail notes a failed request, whose event is the next of the ring.
func (r *Recorder) fail(ev *alloc.Event) {
	f := Failure{RequestedBytes: ev.BlockBytes, Usage: r.now, Event: r.ring.end}
	f.Step, f.Phase = r.where()
	r.failures = append(r.failures, f)
}
