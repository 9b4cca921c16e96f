package data

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// teacherHidden is the width of a teacher net's hidden layer: wide enough that
// no linear net copies it, narrow enough to cost little beside the student.
const teacherHidden = 32

// maxTeacherWeights bounds a teacher's memory to 1 GiB.
const maxTeacherWeights = 1 << 28

// TeacherOptions says what a teacher teaches.
type TeacherOptions struct {
	Seed     uint64
	Split    Split
	Batch    int // rows of a batch
	Features int // inputs of the net
	Outputs  int // classes, or values when Values is set
	// Values makes the teacher's outputs the targets; else the target is the
	// largest output's number.
	Values bool
	// Samples ends the source after so many, 0 never. The targets of rows
	// beyond it in the last batch are Ignore.
	Samples int
}

// teacher is a fixed random net, outputs = V·tanh(U·x).
type teacher struct {
	shape Shape
	opts  TeacherOptions
	u     []float32 // (hidden, features)
	v     []float32 // (outputs, hidden)
}

// Teacher is a set of any dimensions for dense nets: Features (B, F) are
// standard normal, and the targets are what a fixed random net with one hidden
// layer makes of them: Targets (B) for classes or Values (B, O), which have
// mean 0 and a variance near 1. The net depends on the seed alone, so both
// splits agree on it and share no sample.
func Teacher(opts TeacherOptions) (Source, error) {
	t := &teacher{opts: opts, shape: Shape{Kind: Classes, Rows: opts.Batch, Columns: opts.Features, Outputs: opts.Outputs}}
	if opts.Values {
		t.shape.Kind = Values
	}
	if err := t.shape.check("number of features"); err != nil {
		return nil, fmt.Errorf("teacher: %w", err)
	}
	switch {
	case opts.Samples < 0:
		return nil, fmt.Errorf("teacher: number of samples is %d, want 0 (no end) or more", opts.Samples)
	case opts.Values && opts.Samples%opts.Batch != 0:
		return nil, fmt.Errorf("teacher: %d samples of values do not fill batches of %d", opts.Samples, opts.Batch)
	case opts.Features > maxTeacherWeights/teacherHidden, opts.Outputs > maxTeacherWeights/teacherHidden:
		return nil, fmt.Errorf("teacher: %d features and %d outputs, at most %d of each are possible",
			opts.Features, opts.Outputs, maxTeacherWeights/teacherHidden)
	}
	random := newSampler().at(opts.Seed, teacherNetStream, Train, 0)
	t.u = normal(random, teacherHidden*opts.Features, math.Sqrt(1/float64(opts.Features)))
	// tanh of a standard normal number has variance 0.394.
	t.v = normal(random, opts.Outputs*teacherHidden, math.Sqrt(1/(0.394*teacherHidden)))
	return t, nil
}

// normal is n normal numbers of a standard deviation.
func normal(random *rand.Rand, n int, deviation float64) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(random.NormFloat64() * deviation)
	}
	return s
}

func (t *teacher) Shape() Shape { return t.shape }

func (t *teacher) Len() int { return batchesOf(t.opts.Samples, t.shape.Rows) }

func (t *teacher) Batch(i int, dst *Batch) error {
	if err := checkIndex(i, t.Len()); err != nil {
		return err
	}
	dst.reset(i, t.shape)
	f, o := t.shape.Columns, t.shape.Outputs
	sampler := newSampler()
	for r := range t.shape.Rows {
		x := dst.Features[r*f : (r+1)*f]
		sample := i*t.shape.Rows + r
		if t.opts.Samples > 0 && sample >= t.opts.Samples { // classes only
			clear(x)
			dst.Targets[r] = Ignore
			continue
		}
		random := sampler.at(t.opts.Seed, teacherStream, t.opts.Split, uint64(sample))
		for j := range x {
			x[j] = float32(random.NormFloat64())
		}
		var hidden [teacherHidden]float32
		for h := range hidden {
			hidden[h] = float32(math.Tanh(float64(dot(t.u[h*f:(h+1)*f], x))))
		}
		if t.opts.Values {
			for k := range o {
				dst.Values[r*o+k] = dot(t.v[k*teacherHidden:(k+1)*teacherHidden], hidden[:])
			}
		} else {
			dst.Targets[r] = t.class(&hidden)
		}
		dst.Count++
	}
	return nil
}

// class is the number of the largest output.
func (t *teacher) class(hidden *[teacherHidden]float32) int32 {
	best, class := float32(math.Inf(-1)), int32(0)
	for k := range t.shape.Outputs {
		if v := dot(t.v[k*teacherHidden:(k+1)*teacherHidden], hidden[:]); v > best {
			best, class = v, int32(k)
		}
	}
	return class
}

// dot is the scalar product of a and b.
func dot(a, b []float32) float32 {
	sum := float32(0)
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}
