package aten

// The reductions of PyTorch (ATen/native/cuda/Reduce.cuh) split long columns
// among thread blocks, which meet in a buffer in global memory. How many blocks
// there are depends on the card.
const (
	cardProcessors = 132  // streaming multiprocessors of an H100 or H200
	cardThreads    = 2048 // resident threads of one
	reduceThreads  = 512  // of a block, all vector lanes counted
	warp           = 32
)

func lastPowerOf2(n int64) int64 {
	p := int64(1)
	for p*2 <= n {
		p *= 2
	}
	return p
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

func alignUp(n, to int64) int64 { return ceilDiv(n, to) * to }

// columnSumBuffers are the buffer and the semaphores, in bytes, of the sum of a
// contiguous (rows, cols) tensor over its rows; 0, 0 when a block does it
// alone. Sums are accumulated in elements of size bytes. It follows
// setReduceConfig for a reduction that is not over the fastest dimension.
func columnSumBuffers(rows, cols, size int64) (buffer, semaphores int64) {
	if rows < 1 || cols < 1 {
		return 0, 0
	}
	vector := int64(4)
	for cols%vector != 0 {
		vector /= 2
	}
	threads := reduceThreads / vector
	dim0, dim1 := cols, rows
	if vector > 1 {
		dim0 /= vector
	}
	pow0, pow1 := threads, threads
	if dim0 < threads {
		pow0 = lastPowerOf2(dim0)
	}
	if dim1 < threads {
		pow1 = lastPowerOf2(dim1)
	}
	width := min(pow0, warp)
	height := min(pow1, threads/width)
	width = min(pow0, threads/height)
	stepOutput := width * vector
	values := rows
	split := values >= min(height*16, 256)
	if !split {
		return 0, 0
	}
	values = ceilDiv(rows, height)
	grid := ceilDiv(cols, stepOutput)
	target := int64(cardProcessors) * (cardThreads / (width * height))
	if values < 256 || grid > target {
		return 0, 0
	}
	blocks := max(min(ceilDiv(target, grid), ceilDiv(values, 16)), ceilDiv(values, 256))
	if blocks <= 1 {
		return 0, 0
	}
	return size * cols * blocks * width * vector, 4 * grid
}

// wholeSumBuffers are those of the sum of all n elements: a reduction over the
// fastest dimension, of which a thread loads four at a time.
func wholeSumBuffers(n, size int64) (buffer, semaphores int64) {
	threads := int64(reduceThreads)
	width := n
	if n >= 4*warp {
		width = n / 4
	}
	width = min(lastPowerOf2(max(width, 1)), threads)
	values := ceilDiv(n, width)
	if values < 256 {
		return 0, 0
	}
	target := int64(cardProcessors) * (cardThreads / width)
	blocks := max(min(target, ceilDiv(values, 16)), ceilDiv(values, 256))
	if blocks <= 1 {
		return 0, 0
	}
	return size * blocks, 4
}
