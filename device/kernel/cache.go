package kernel

// CacheWrite is what goes to a cache (Rows, capacity, Width): of x (Rows, Tokens,
// Columns) the columns from From on.
type CacheWrite struct{ Rows, Tokens, Columns, From, Width int }

// AttentionDecode is the sizes of attention of one query a row on a cache (Rows,
// capacity, KVHeads·Size). The queries lie Columns elements apart. With a Window
// a query sees that many positions, its own being the last; 0 is all.
type AttentionDecode struct {
	Rows, Heads, KVHeads, Size int
	Columns                    int
	Scale                      float64
	Window                     int
}

// Visible is the part of a cache of capacity positions that a query sees which
// has at positions before it: those from lo to before hi. A cache that has fewer
// than that has the latest ones, in any order.
func (a AttentionDecode) Visible(at, capacity int) (lo, hi int) {
	hi = min(at+1, capacity)
	if a.Window > 0 && at < capacity {
		lo = max(0, hi-a.Window)
	}
	return lo, hi
}

// ArgMax is the sizes of a search in each row for the largest of the first Columns
// elements; rows lie Stride elements apart.
type ArgMax struct{ Rows, Columns, Stride int }
