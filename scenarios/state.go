package scenarios

import "strings"

// family is an optimizer's name without its implementation.
func family(optimizer string) string {
	for _, suffix := range []string{"-fused", "-loop", "-foreach"} {
		optimizer = strings.TrimSuffix(optimizer, suffix)
	}
	return optimizer
}

// counterBytes is what the fused Adam keeps on the device beside its moments:
// a 4-byte count of steps for each tensor, as PyTorch's does.
func counterBytes(optimizer string, r *trained) int64 {
	if f := family(optimizer); (f == "adam" || f == "adamw") && implementation(optimizer) == "fused" {
		return 4 * r.tensors
	}
	return 0
}

// stateBytes is the optimizer's state for the parameters of a training, by the
// formulas of the documents and of Adafactor's paper (Shazeer and Stern, 2018),
// for 4-byte numbers; step counters are not in it.
func stateBytes(optimizer string, r *trained) int64 {
	switch family(optimizer) {
	case "sgd":
		return 0
	case "sgd-momentum":
		return 4 * r.parameters
	case "adam", "adamw":
		return 2 * 4 * r.parameters
	case "adafactor":
		return 4 * r.factored
	}
	return -1
}

// stateFormula says stateBytes in words.
func stateFormula(optimizer string) string {
	switch family(optimizer) {
	case "sgd":
		return "nothing"
	case "sgd-momentum":
		return "N × P (momentum)"
	case "adam", "adamw":
		return "2 × N × P (both moments)"
	case "adafactor":
		return "rows + columns of each matrix and all of each vector, × P (factored second moment)"
	}
	return ""
}

// factoredElements is the number of elements of Adafactor's second moment: for
// a tensor of two or more dimensions the sums over its last and over its last
// but one dimension, for others the tensor's own.
func factoredElements(shape []int) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= int64(d)
	}
	if len(shape) < 2 {
		return n
	}
	last, before := int64(shape[len(shape)-1]), int64(shape[len(shape)-2])
	return n/last + n/before
}
