package session

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
)

// AllocationError says for what memory could not be had, what was in use, and
// what would need less.
type AllocationError struct {
	Bytes int64
	Label instrument.Label
	// InUse is what was allocated, by category; all zero without a recorder.
	InUse instrument.ByCategory
	// Pinned are the nearly empty segments, the largest first, where enough was
	// reserved and free for the request but in pieces; else nil.
	Pinned []PinnedSegment
	// Expandable says that the allocator's segments are expandable; it is only
	// set where memory is in pieces.
	Expandable bool
	Err        error
}

// Error is one line.
func (e *AllocationError) Error() string {
	line := fmt.Sprintf("allocating %d bytes for %s: %v", e.Bytes, describeLabel(e.Label), e.Err)
	if e.InUse.Total() > 0 {
		line += "; in use: " + e.InUse.String()
	}
	if pinned := describePinned(e.Pinned); pinned != "" {
		line += "; " + pinned
	}
	if a := e.Advice(); a != "" {
		line += "; to need less: " + a
	}
	return line
}

// describeLabel names a module, its operation and the category.
func describeLabel(l instrument.Label) string {
	where := l.Module
	if where == "" {
		where = "the model"
	}
	return fmt.Sprintf("%s (%s, %v)", where, l.Op, l.Category)
}

// Unwrap is the allocator's error.
func (e *AllocationError) Unwrap() error { return e.Err }

// remedies say, by the category that holds most, what makes it smaller.
var remedies = map[instrument.Category]string{
	instrument.Activation:         "a smaller batch with gradient accumulation, shorter sequences, or gradient checkpointing",
	instrument.Temporary:          "a smaller batch with gradient accumulation, or shorter sequences",
	instrument.Input:              "a smaller batch",
	instrument.OptimizerState:     "an optimizer with less state, such as adafactor or sgd",
	instrument.OptimizerTemporary: "a fused optimizer, such as adamw-fused",
	instrument.Gradient:           "a smaller model: gradients are as large as the parameters",
	instrument.Parameter:          "a smaller model: the parameters alone are the most of it",
}

// Advice says what would need less memory, judged by what holds most of it; it
// is empty where that is not known.
func (e *AllocationError) Advice() string {
	var most instrument.Category
	for _, c := range instrument.Categories() {
		if e.InUse[c] > e.InUse[most] {
			most = c
		}
	}
	var advice []string
	if e.fragmented() && !e.Expandable {
		advice = append(advice, "the allocator's expandable_segments:True, since free memory is in pieces")
	}
	if e.Label.Category == instrument.OptimizerTemporary {
		most = instrument.OptimizerTemporary
	}
	if r := remedies[most]; r != "" && e.InUse[most] > 0 {
		advice = append(advice, r)
	}
	return strings.Join(advice, "; or ")
}

// fragmented says that enough is reserved and free, but in pieces.
func (e *AllocationError) fragmented() bool {
	var oom *alloc.OutOfMemoryError
	return errors.As(e.Err, &oom) && oom.ReservedBytes-oom.AllocatedBytes >= e.Bytes
}
