package aten

import (
	"testing"
)

// TestReductionBuffers compares with allocations in traces of PyTorch on an
// H200 (132 multiprocessors).
func TestReductionBuffers(t *testing.T) {
	for _, c := range []struct{ rows, cols, buffer, semaphores int64 }{
		{1152, 80, 0, 0},
		{1152, 240, 2211840, 8},
		{1152, 320, 2949120, 12},
		{1056, 320, 2785280, 12},
		{1056, 240, 2088960, 8},
		{384, 320, 0, 0},
		{4096, 384, 12582912, 12},
		{4096, 1152, 37748736, 36},
		{4096, 1536, 50331648, 48},
	} {
		buffer, semaphores := columnSumBuffers(c.rows, c.cols, 4)
		if buffer != c.buffer || semaphores != c.semaphores {
			t.Errorf("sum of %d rows of %d: buffers of %d and %d bytes, PyTorch %d and %d", c.rows, c.cols, buffer, semaphores, c.buffer, c.semaphores)
		}
	}
	if buffer, semaphores := wholeSumBuffers(12*88*331, 4); buffer != 172 || semaphores != 4 {
		t.Errorf("mean of logits: buffers of %d and %d bytes, PyTorch 172 and 4", buffer, semaphores)
	}
	if buffer, _ := wholeSumBuffers(100, 4); buffer != 0 {
		t.Errorf("a mean of 100 elements has a buffer of %d bytes", buffer)
	}
}

// TestEfficientTiles compares the workspace of the memory-efficient attention's
// backward pass with traces.
func TestEfficientTiles(t *testing.T) {
	for _, c := range []struct{ heads, tokens, size, want int64 }{
		{12 * 5, 96, 16, 1968000},
		{4 * 5, 96, 16, 656000},
		{12 * 5, 88, 16, 1968000},
		{16 * 6, 256, 64, 6297600},
		// More than 64 elements: tiles of 128 rows, and two of 64 columns
		// (kernel_backward.h).
		{1, 128, 65, 2 * (4*128*64 + 16)},
		{3, 129, 80, 3 * 2 * 2 * (4*128*64 + 16)},
		{1, 1, 96, 2 * (4*128*64 + 16)},
	} {
		if got := c.heads * efficientTiles(c.tokens, c.size); got != c.want {
			t.Errorf("%d heads of %d over %d tokens: %d bytes, PyTorch %d", c.heads, c.size, c.tokens, got, c.want)
		}
	}
}
