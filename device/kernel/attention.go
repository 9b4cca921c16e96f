package kernel

import "math"

// Attention is the sizes of attention, what its scores become, and which of them
// count.
type Attention struct {
	Batch, Queries, Keys, Heads, KVHeads int
	Size                                 int // elements of a head
	Scale                                float64
	// SoftCap bounds scores: s becomes SoftCap·tanh(s/SoftCap). 0 for none.
	SoftCap float64
	// Window is how many keys a query sees: its own and the ones before it, or
	// with Bidirectional those less than Window away on either side. 0 for all.
	Window int
	// Bidirectional says that a query sees the keys after it, too.
	Bidirectional bool
	// Dropout is of the weights, that is the softmax's results.
	Dropout
}

// Visible are the keys that a query sees: from and up to, without, to. The queries
// are the last of the positions, so that query i is at position i + Keys − Queries.
func (a Attention) Visible(query int) (from, to int) {
	at := query + a.Keys - a.Queries
	from, to = 0, a.Keys
	if !a.Bidirectional {
		to = at + 1
	} else if a.Window > 0 {
		to = min(a.Keys, at+a.Window)
	}
	if a.Window > 0 {
		from = max(0, at-a.Window+1)
	}
	return from, to
}

// Products is the number of floating-point operations of one of the matrix
// products over the scores that count: B·H·Tq·(2Tk−Tq)·D of a causal one.
func (a Attention) Products() float64 {
	perPair := float64(a.Batch) * float64(a.Heads) * float64(a.Size)
	switch {
	case a.Window > 0:
		pairs := 0.0
		for i := range a.Queries {
			from, to := a.Visible(i)
			pairs += float64(to - from)
		}
		return 2 * perPair * pairs
	case a.Bidirectional:
		return 2 * perPair * float64(a.Queries) * float64(a.Keys)
	}
	return perPair * float64(a.Queries) * float64(2*a.Keys-a.Queries)
}

// UsualScale is 1/√D.
func (a Attention) UsualScale() float64 { return 1 / math.Sqrt(float64(a.Size)) }
