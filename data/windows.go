package data

import "fmt"

// windows is batches of a text's tokens: a window of T+1 tokens is a row, its
// inputs all tokens but the last, its targets all but the first.
type windows struct {
	shape  Shape
	tokens []uint16
	seed   uint64
	split  Split
	random bool
}

// Windows draws windows of context+1 tokens at random, evenly over all places
// where one fits, without end.
func (t *Text) Windows(part Split, batch, context int, seed uint64) (Source, error) {
	w, err := t.windows(part, batch, context)
	if err != nil {
		return nil, err
	}
	w.random, w.seed, w.split = true, seed, part
	return w, nil
}

// Sequential cuts a part into windows one behind the other, for evaluation:
// over all batches each token but the first is a target exactly once. What the
// last window and the last batch cannot fill has the target Ignore.
func (t *Text) Sequential(part Split, batch, context int) (Source, error) {
	w, err := t.windows(part, batch, context)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// windows checks the shape and that the part is long enough. Sequential windows
// fill themselves up, but a text without a whole one is a mistake there too.
func (t *Text) windows(part Split, batch, context int) (*windows, error) {
	w := &windows{
		shape:  Shape{Kind: Tokens, Rows: batch, Columns: context, Outputs: t.Vocabulary.Size()},
		tokens: t.part(part),
	}
	if err := w.shape.check("context"); err != nil {
		return nil, fmt.Errorf("text %s: %w", t.name, err)
	}
	if len(w.tokens) < context+1 {
		return nil, fmt.Errorf("text %s: its %v part has %d tokens, a context of %d needs at least %d",
			t.name, part, len(w.tokens), context, context+1)
	}
	return w, nil
}

func (w *windows) Shape() Shape { return w.shape }

func (w *windows) Len() int {
	if w.random {
		return -1
	}
	targets := len(w.tokens) - 1
	return batchesOf(batchesOf(targets, w.shape.Columns), w.shape.Rows)
}

func (w *windows) Batch(i int, dst *Batch) error {
	if err := checkIndex(i, w.Len()); err != nil {
		return err
	}
	dst.reset(i, w.shape)
	t, random := w.shape.Columns, newSampler()
	for r := range w.shape.Rows {
		sample := i*w.shape.Rows + r
		start := sample * t
		if w.random {
			start = random.at(w.seed, windowStream, w.split, uint64(sample)).IntN(len(w.tokens) - t)
		}
		dst.Count += w.row(start, dst.Inputs[r*t:(r+1)*t], dst.Targets[r*t:(r+1)*t])
	}
	return nil
}

// row fills one row from the token at start and says how many targets it has.
func (w *windows) row(start int, inputs, targets []int32) int {
	n := max(0, min(len(inputs), len(w.tokens)-1-start))
	for j := range n {
		inputs[j] = int32(w.tokens[start+j])
		targets[j] = int32(w.tokens[start+j+1])
	}
	for j := n; j < len(inputs); j++ {
		inputs[j], targets[j] = 0, Ignore
	}
	return n
}

// randomTokens is tokens without meaning.
type randomTokens struct {
	shape Shape
	seed  uint64
}

// RandomTokens is batches of tokens drawn evenly from a vocabulary, without
// end, in rows of context+1 as a text's are: a load for measurements where the
// text does not matter.
func RandomTokens(vocabulary, batch, context int, seed uint64) (Source, error) {
	s := &randomTokens{Shape{Kind: Tokens, Rows: batch, Columns: context, Outputs: vocabulary}, seed}
	if err := s.shape.check("context"); err != nil {
		return nil, fmt.Errorf("random tokens: %w", err)
	}
	if vocabulary > 1<<31-1 {
		return nil, fmt.Errorf("random tokens: a vocabulary of %d does not fit 32 bits", vocabulary)
	}
	return s, nil
}

func (s *randomTokens) Shape() Shape { return s.shape }

func (s *randomTokens) Len() int { return -1 }

func (s *randomTokens) Batch(i int, dst *Batch) error {
	if err := checkIndex(i, -1); err != nil {
		return err
	}
	dst.reset(i, s.shape)
	t, sampler := s.shape.Columns, newSampler()
	for r := range s.shape.Rows {
		random := sampler.at(s.seed, tokenStream, Train, uint64(i*s.shape.Rows+r))
		token := random.Int32N(int32(s.shape.Outputs))
		for j := r * t; j < (r+1)*t; j++ {
			dst.Inputs[j] = token
			token = random.Int32N(int32(s.shape.Outputs))
			dst.Targets[j] = token
		}
	}
	dst.Count = len(dst.Targets)
	return nil
}
