package data

import "fmt"

// RandomLabels is rows of so many tokens drawn evenly from a vocabulary, each row with a
// class drawn evenly, without end: RandomTokens for a model that says of a sequence to
// which of so many classes it belongs.
func RandomLabels(vocabulary, classes, batch, tokens int, seed uint64) (Source, error) {
	s := &randomLabels{Shape{Kind: Labels, Rows: batch, Columns: tokens, Outputs: classes}, vocabulary, seed}
	if err := s.shape.check("number of tokens"); err != nil {
		return nil, fmt.Errorf("random labels: %w", err)
	}
	if vocabulary < 1 || vocabulary > 1<<31-1 || classes > 1<<31-1 {
		return nil, fmt.Errorf("random labels: a vocabulary of %d and %d classes: each must be from 1 to 2³¹−1", vocabulary, classes)
	}
	return s, nil
}

// randomLabels is tokens and labels without meaning.
type randomLabels struct {
	shape      Shape
	vocabulary int
	seed       uint64
}

func (s *randomLabels) Shape() Shape { return s.shape }

func (s *randomLabels) Len() int { return -1 }

func (s *randomLabels) Batch(i int, dst *Batch) error {
	if err := checkIndex(i, -1); err != nil {
		return err
	}
	dst.reset(i, s.shape)
	t, sampler := s.shape.Columns, newSampler()
	for r := range s.shape.Rows {
		random := sampler.at(s.seed, labelStream, Train, uint64(i*s.shape.Rows+r))
		for j := r * t; j < (r+1)*t; j++ {
			dst.Inputs[j] = random.Int32N(int32(s.vocabulary))
		}
		dst.Targets[r] = random.Int32N(int32(s.shape.Outputs))
	}
	dst.Count = len(dst.Targets)
	return nil
}
