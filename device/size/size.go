// Package size does the arithmetic of sizes: numbers of elements and bytes that
// come from outside (a config, a flag, a file) multiply and add up to less than
// 2^63, or it is said that they do not.
package size

import (
	"errors"
	"math"
	"math/bits"
)

// ErrTooLarge says that a product or sum is 2^63 or more.
var ErrTooLarge = errors.New("it is 2^63 or more, which is beyond counting")

// ErrNegative says that a factor or term is below 0: no size is.
var ErrNegative = errors.New("a size is negative")

// Product multiplies sizes; that of none is 1.
func Product[T ~int | ~int64](factors ...T) (int64, error) {
	p, err := uint64(1), error(nil)
	for _, f := range factors {
		if f < 0 {
			return 0, ErrNegative
		}
		if f == 0 {
			return 0, negative(factors)
		}
		hi, lo := bits.Mul64(p, uint64(f))
		if hi != 0 || lo > math.MaxInt64 {
			err, lo = ErrTooLarge, 1 // a later factor can still be 0
		}
		p = lo
	}
	if err != nil {
		return 0, err
	}
	return int64(p), nil
}

// negative is ErrNegative if there is a negative size.
func negative[T ~int | ~int64](sizes []T) error {
	for _, n := range sizes {
		if n < 0 {
			return ErrNegative
		}
	}
	return nil
}

// Sum adds sizes; that of none is 0.
func Sum[T ~int | ~int64](terms ...T) (int64, error) {
	var s uint64
	for _, t := range terms {
		if t < 0 {
			return 0, ErrNegative
		}
		if s += uint64(t); s > math.MaxInt64 {
			return 0, ErrTooLarge
		}
	}
	return int64(s), nil
}
