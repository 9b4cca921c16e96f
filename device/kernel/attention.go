package kernel

import "math"

// Attention is the sizes of attention and what its scores are multiplied by.
type Attention struct {
	Batch, Queries, Keys, Heads, KVHeads int
	Size                                 int // elements of a head
	Scale                                float64
}

// Products is the number of floating-point operations of one of the matrix
// products over the visible half of the scores, counted as B·H·Tq·(2Tk−Tq)·D.
func (a Attention) Products() float64 {
	return float64(a.Batch) * float64(a.Heads) * float64(a.Size) * float64(a.Queries) * float64(2*a.Keys-a.Queries)
}

// UsualScale is 1/√D.
func (a Attention) UsualScale() float64 { return 1 / math.Sqrt(float64(a.Size)) }
