package kernel

// Rows is the sizes of an operation on each row of a matrix: a normalisation,
// softmax.
type Rows struct {
	Rows, Columns int
	Epsilon       float64 // of a normalisation
}

// Linear is the sizes of y = x·Wᵀ + b: x (Rows, In), W (Out, In), y (Rows, Out).
type Linear struct {
	Rows, In, Out int
	InFirst       bool // W is (In, Out)
	// Kept is how many rows of W are no padding, where the others are to have no
	// gradient; 0 for all.
	Kept int
}
