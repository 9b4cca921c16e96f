package host

import (
	"testing"
)

// The tile of every head size is a whole number of the matrix kernels' columns,
// fits the working memory, and is as large as one goroutine's product allows.
func TestTiles(t *testing.T) {
	const lanes = 16
	for size := 1; size <= 256; size++ {
		n := tileCols(size)
		fits := func(n int) bool { return tileRows*n*size < tileTerms }
		if n%lanes != 0 || n > tileMaxCols || n > lanes && !fits(n) {
			t.Errorf("heads of %d elements: tiles of %d keys", size, n)
		}
		if n < tileMaxCols && fits(n+lanes) {
			t.Errorf("heads of %d elements: tiles of %d keys where %d fit", size, n, n+lanes)
		}
	}
	for size, want := range map[int]int{65: 64, 85: 64, 86: 48, 96: 48} {
		if got := tileCols(size); got != want {
			t.Errorf("heads of %d elements: tiles of %d keys, want %d", size, got, want)
		}
	}
}
