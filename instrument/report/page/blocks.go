package page

import (
	"cmp"
	"math"
	"slices"
)

// lifespan is how long something was there and how large it was.
type lifespan struct{ start, end, bytes int64 }

// thin keeps at most n of a list: first what was there at the peak, then what
// had the most bytes times events. It keeps the order, and returns the bytes of
// the largest that it left out.
func thin[T any](list []T, n int, of func(*T) lifespan, peakEvent int64) (kept []T, largestBytes int64) {
	if len(list) <= n {
		return list, 0
	}
	order := make([]int32, len(list))
	weights := make([]float64, len(list))
	for i := range list {
		order[i] = int32(i)
		s := of(&list[i])
		weights[i] = float64(s.bytes) * float64(s.end-s.start)
		if s.start <= peakEvent && peakEvent < s.end {
			weights[i] = math.Inf(1)
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(weights[b], weights[a]) })
	for _, i := range order[n:] {
		largestBytes = max(largestBytes, of(&list[i]).bytes)
	}
	order = order[:n]
	slices.Sort(order)
	for _, i := range order {
		kept = append(kept, list[i])
	}
	return kept, largestBytes
}

// shares divides a number of events among recordings: each gets what it has, or
// else an equal part of what the smaller ones leave.
func shares(have []int64, total int64) []int64 {
	order := make([]int, len(have))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(have[a], have[b]) })
	list := make([]int64, len(have))
	for k, i := range order {
		list[i] = min(have[i], total/int64(len(have)-k))
		total -= list[i]
	}
	return list
}
