package predict

import (
	"fmt"
	"math"
	"math/bits"
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
	n, err := product("--parameters", parameters, width)
	if err != nil {
		return Weights{}, err
	}
	w := Weights{Parameters: parameters, Bits: width, WeightBytes: inBytes(n), ReserveBytes: int64(math.Round(reserveGiB * gib))}
	w.TotalBytes = w.WeightBytes + w.ReserveBytes
	return w, nil
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
	n, err := product("--tokens", 2, c.Layers, c.Heads, c.HeadDim, c.Tokens, c.Bits)
	if err != nil {
		return c, err
	}
	c.SequenceBytes = inBytes(n)
	c.TotalBytes, err = product("--sequences", c.SequenceBytes, c.Sequences)
	return c, err
}

func inBytes(bits int64) int64 { return bits/8 + (bits%8+7)/8 }

// product multiplies positive numbers and says which flag to lower when the
// product is too large to count.
func product(flag string, factors ...int64) (int64, error) {
	p := uint64(1)
	for _, f := range factors {
		hi, lo := bits.Mul64(p, uint64(f))
		if hi != 0 || lo > math.MaxInt64 {
			return 0, fmt.Errorf("%s: the sizes multiply to more than 2^63 bits or bytes", flag)
		}
		p = lo
	}
	return int64(p), nil
}
