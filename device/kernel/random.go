package kernel

// Fill is random initial values: Scale is the standard deviation or the largest
// value, and Stream tells the tensors of one Seed apart.
type Fill struct {
	Scale        float64
	Seed, Stream uint64
}

// Dropout drops each element with a probability. Serial, below 2³², tells the
// calls of a graph apart; the seed and the pass come with each call.
type Dropout struct {
	Probability float64
	Serial      int
}

// Stream is where a forward pass's random numbers begin in the counter's upper
// half.
func (d Dropout) Stream(pass int64) uint64 { return uint64(pass)<<32 + uint64(d.Serial) }
