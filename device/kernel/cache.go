package kernel

// CacheWrite is what goes to a cache (Rows, capacity, Width): of x (Rows, Tokens,
// Columns) the columns from From on.
type CacheWrite struct{ Rows, Tokens, Columns, From, Width int }

// AttentionDecode is the sizes of attention of one query a row on a cache (Rows,
// capacity, KVHeads·Size). The queries lie Columns elements apart. Scale, SoftCap
// and Window are those of Attention.
type AttentionDecode struct {
	Rows, Heads, KVHeads, Size int
	Columns                    int
	Scale, SoftCap             float64
	Window                     int
}

// Visible is what a query sees of a cache of capacity positions, in which position
// p lies in place p mod capacity: the first place, and how many follow each other
// from there on, the first coming after the last. at positions come before the
// query's own.
func (a AttentionDecode) Visible(at, capacity int) (first, count int) {
	count = min(at+1, capacity)
	if a.Window > 0 {
		count = min(count, a.Window)
	}
	return (at + 1 - count) % capacity, count
}

// ArgMax is the sizes of a search in each row for the largest of the first Columns
// elements; rows lie Stride elements apart.
type ArgMax struct{ Rows, Columns, Stride int }
