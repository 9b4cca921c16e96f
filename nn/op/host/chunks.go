package host

// InChunks calls f for pieces of at most chunk elements of [0, n), with room
// for as many exponentials.
func InChunks(n int, f func(lo, hi int, e []float64)) {
	var e [chunk]float64
	for lo := 0; lo < n; lo += chunk {
		hi := min(lo+chunk, n)
		f(lo, hi, e[:hi-lo])
	}
}
