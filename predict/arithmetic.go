package predict

import (
	"fmt"
	"math"

	"github.com/tidemark-lab/tidemark/device/size"
)

// Weights is the memory of a model's weights alone.
type Weights struct {
	Parameters   int64 `json:"parameters"`
	Bits         int64 `json:"bits"`
	WeightBytes  int64 `json:"weight_bytes"`  // rounded up to whole bytes
	ReserveBytes int64 `json:"reserve_bytes"` // for everything else, as given
	TotalBytes   int64 `json:"total_bytes"`
}

// ComputeWeights multiplies parameters by bits and adds a reserve in GiB.
func ComputeWeights(parameters, width int64, reserveGiB float64) (Weights, error) {
	if parameters < 1 {
		return Weights{}, fmt.Errorf("--parameters %d: it must be at least 1", parameters)
	}
	if width < 1 || width > 64 {
		return Weights{}, fmt.Errorf("--bits %d: a parameter has from 1 to 64 bits", width)
	}
	if !(reserveGiB >= 0) || reserveGiB > 1<<30 {
		return Weights{}, fmt.Errorf("--reserve-gib %v: it must be 0 or more, and at most 2^30", reserveGiB)
	}
	n, err := size.Product(parameters, width)
	if err != nil {
		return Weights{}, fmt.Errorf("--parameters %d of %d bits: %w", parameters, width, err)
	}
	w := Weights{Parameters: parameters, Bits: width, WeightBytes: inBytes(n), ReserveBytes: int64(math.Round(reserveGiB * gib))}
	if w.TotalBytes, err = size.Sum(w.WeightBytes, w.ReserveBytes); err != nil {
		err = fmt.Errorf("--parameters %d with --reserve-gib %v: %w", parameters, reserveGiB, err)
	}
	return w, err
}

// Cache is the memory of the keys and values of an attention that generates.
type Cache struct {
	Layers        int64 `json:"layers"`
	Heads         int64 `json:"heads"` // key/value heads
	HeadDim       int64 `json:"head_dim"`
	Tokens        int64 `json:"tokens"` // of one sequence
	Sequences     int64 `json:"sequences"`
	Bits          int64 `json:"bits"`
	SequenceBytes int64 `json:"sequence_bytes"` // of one sequence
	TotalBytes    int64 `json:"total_bytes"`
}

// ComputeCache is 2 (a key and a value) · layers · heads · size · tokens · bits.
func ComputeCache(c Cache) (Cache, error) {
	for _, f := range []struct {
		name string
		n    int64
	}{
		{"--kv-layers", c.Layers}, {"--kv-heads", c.Heads}, {"--head-dim", c.HeadDim},
		{"--tokens", c.Tokens}, {"--sequences", c.Sequences},
	} {
		if f.n < 1 {
			return c, fmt.Errorf("%s %d: it must be at least 1", f.name, f.n)
		}
	}
	if c.Bits < 1 || c.Bits > 64 {
		return c, fmt.Errorf("--bits %d: an element has from 1 to 64 bits", c.Bits)
	}
	n, err := size.Product(2, c.Layers, c.Heads, c.HeadDim, c.Tokens, c.Bits)
	if err != nil {
		return c, fmt.Errorf("the bits of --kv-layers %d × --kv-heads %d × --head-dim %d × --tokens %d: %w", c.Layers, c.Heads, c.HeadDim, c.Tokens, err)
	}
	c.SequenceBytes = inBytes(n)
	if c.TotalBytes, err = size.Product(c.SequenceBytes, c.Sequences); err != nil {
		err = fmt.Errorf("the bytes of --sequences %d: %w", c.Sequences, err)
	}
	return c, err
}

func inBytes(bits int64) int64 { return bits/8 + (bits%8+7)/8 }
