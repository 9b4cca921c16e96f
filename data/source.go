// Package data turns texts into tokens and batches, generates sets that a net
// can learn without a download, and prepares batches ahead of their use.
//
// Whatever is random here is counted, not streamed: sample i of a source is a
// pure function of the source's seed and of i. A training that knows its
// position resumes exactly, any number of workers prepares the same batches,
// and k batches of B/k rows hold the samples of one batch of B rows.
package data

import (
	"fmt"
	"math/rand/v2"
)

// Ignore is the target of a row or position that no loss should count: a batch
// that a finite source cannot fill is filled up with it. It is PyTorch's
// default ignore_index.
const Ignore = -100

// Kind is what a source's batches hold.
type Kind uint8

const (
	// Tokens: Inputs and Targets, both (B, T).
	Tokens Kind = iota
	// Classes: Features (B, F) and Targets (B).
	Classes
	// Values: Features (B, F) and Values (B, O).
	Values
	// Labels: Inputs (B, T) and Targets (B).
	Labels
)

// Shape describes every batch of a source.
type Shape struct {
	Kind    Kind
	Rows    int // B
	Columns int // T tokens or F features
	// Outputs is the size of the vocabulary, the number of classes, or the
	// number of values a row.
	Outputs int
}

// Source is a sequence of batches.
type Source interface {
	// Shape is the same for every batch.
	Shape() Shape
	// Len is the number of batches, -1 for a source without end.
	Len() int
	// Batch makes batch i (from 0) in dst, using dst's memory where it is
	// large enough. It may be called from several goroutines at once, each
	// with a dst of its own.
	Batch(i int, dst *Batch) error
}

// Batch is B rows. All slices are row-major; those that the source's Kind does
// not name are empty.
type Batch struct {
	Index    int       // the i of Source.Batch
	Inputs   []int32   // (B, T)
	Features []float32 // (B, F)
	Targets  []int32   // (B, T) or (B)
	Values   []float32 // (B, O)
	// Count is the number of targets that are not Ignore, or of rows of Values.
	Count int
}

// reset gives b the room that batch i of a source of shape s needs.
func (b *Batch) reset(i int, s Shape) {
	b.Index, b.Count = i, 0
	inputs, features, targets, values := 0, 0, 0, 0
	switch s.Kind {
	case Tokens:
		inputs, targets = s.Rows*s.Columns, s.Rows*s.Columns
	case Classes:
		features, targets = s.Rows*s.Columns, s.Rows
	case Values:
		features, values = s.Rows*s.Columns, s.Rows*s.Outputs
	case Labels:
		inputs, targets = s.Rows*s.Columns, s.Rows
	}
	b.Inputs = room(b.Inputs, inputs)
	b.Features = room(b.Features, features)
	b.Targets = room(b.Targets, targets)
	b.Values = room(b.Values, values)
}

// room is s with length n, its contents unspecified.
func room[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// maxBatchElements bounds a batch to 8 GiB a slice.
const maxBatchElements = 1<<31 - 1

// check refuses shapes that make no batch, or one of absurd size.
func (s Shape) check(columns string) error {
	switch {
	case s.Rows < 1:
		return fmt.Errorf("batch size is %d, want at least 1", s.Rows)
	case s.Columns < 1:
		return fmt.Errorf("%s is %d, want at least 1", columns, s.Columns)
	case s.Outputs < 1:
		return fmt.Errorf("number of outputs is %d, want at least 1", s.Outputs)
	}
	widest := s.Columns
	if s.Kind == Values {
		widest = max(widest, s.Outputs)
	}
	if widest > maxBatchElements/s.Rows {
		return fmt.Errorf("a batch of %d × %d is beyond 2³¹ elements", s.Rows, widest)
	}
	return nil
}

// checkIndex refuses batches that a source of n batches does not have.
func checkIndex(i, n int) error {
	if i < 0 || n >= 0 && i >= n {
		if n < 0 {
			return fmt.Errorf("batch %d does not exist, the first is 0", i)
		}
		return fmt.Errorf("batch %d does not exist, the source has %d from 0", i, n)
	}
	return nil
}

// batchesOf is the number of batches of rows that hold n samples, -1 for n = 0,
// which stands for no end.
func batchesOf(n, rows int) int {
	if n == 0 {
		return -1
	}
	return (n-1)/rows + 1
}

// Split says which part of a set a source draws from. The two share no sample.
type Split uint8

// The parts of a set.
const (
	Train Split = iota
	Validation
)

// String is "training" or "validation".
func (s Split) String() string {
	if s == Train {
		return "training"
	}
	return "validation"
}

// streams tell the users of one seed apart.
const (
	windowStream = iota + 1
	tokenStream
	digitStream
	teacherStream
	teacherNetStream
	labelStream
)

// sampler gives the random numbers of one sample after the other.
type sampler struct {
	pcg  rand.PCG
	rand *rand.Rand
}

func newSampler() *sampler {
	s := &sampler{}
	s.rand = rand.New(&s.pcg)
	return s
}

// at turns to the random numbers of sample i of a split: a PCG whose state is
// (mix(seed, stream), mix(2i + split)). mix is a bijection of 64 bits, so no
// two samples of a seed and stream, in whichever split, share a state.
func (s *sampler) at(seed, stream uint64, split Split, i uint64) *rand.Rand {
	s.pcg.Seed(mix(seed+stream*0x9e3779b97f4a7c15), mix(2*i+uint64(split)))
	return s.rand
}

// mix is the output function of SplitMix64 (Steele, Lea and Flood, "Fast
// Splittable Pseudorandom Number Generators", 2014).
func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
