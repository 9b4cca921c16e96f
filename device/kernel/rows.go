package kernel

// Scalar is the number of an elementwise kernel.
type Scalar struct{ Value float64 }

// Rows is the sizes of an operation on each row of a matrix: a normalisation,
// softmax.
type Rows struct {
	Rows, Columns int
	Epsilon       float64 // of a normalisation
	Offset        float64 // what is added to a normalisation's weights
}

// Linear is the sizes of y = x·Wᵀ + b: x (Rows, In), W (Out, In), y (Rows, Out).
type Linear struct {
	Rows, In, Out int
	InFirst       bool // W is (In, Out)
	// Kept is how many rows of W are no padding, where the others are to have no
	// gradient; 0 for all.
	Kept int
}

// Embedding is the sizes of a table (Vocabulary, Width) and of what is looked up.
type Embedding struct{ Tokens, Vocabulary, Width int }

// CrossEntropy is the sizes of logits (Rows, Columns), whose columns after the
// first Vocabulary are padding, and the target that is left out of the mean.
type CrossEntropy struct{ Rows, Vocabulary, Columns, Ignore int }

// Rope is the sizes of x (Batch, Positions, Heads·Size), and of the table: the
// first Turned elements of a head are turned, the others stay.
type Rope struct{ Batch, Positions, Heads, Size, Turned int }

// Slice is where a slice begins, in elements.
type Slice struct{ Offset int64 }
