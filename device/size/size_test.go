package size

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// TestAgainstBig compares with arithmetic without a limit, near the powers of
// two where products and sums leave int64.
func TestAgainstBig(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	most := big.NewInt(math.MaxInt64)
	check := func(what string, terms []int64, got int64, err error, want *big.Int) {
		t.Helper()
		switch {
		case want.Cmp(most) > 0:
			if !errors.Is(err, ErrTooLarge) {
				t.Fatalf("%s of %v is %d, %v; it is %v", what, terms, got, err, want)
			}
		case err != nil || got != want.Int64():
			t.Fatalf("%s of %v is %d, %v; want %v", what, terms, got, err, want)
		}
	}
	for range 20000 {
		terms := make([]int64, r.IntN(5))
		product, sum := big.NewInt(1), new(big.Int)
		for i := range terms {
			terms[i] = max(int64(1)<<r.IntN(63)+r.Int64N(5)-2, 0)
			if r.IntN(10) == 0 {
				terms[i] = 0
			}
			product.Mul(product, big.NewInt(terms[i]))
			sum.Add(sum, big.NewInt(terms[i]))
		}
		p, err := Product(terms...)
		check("the product", terms, p, err, product)
		s, err := Sum(terms...)
		check("the sum", terms, s, err, sum)
	}
}

func TestNegative(t *testing.T) {
	for _, terms := range [][]int{{-1}, {0, -1}, {-1, 0}, {math.MaxInt, math.MaxInt, -2}, {math.MinInt, math.MinInt}} {
		if p, err := Product(terms...); err == nil {
			t.Errorf("the product of %v is %d", terms, p)
		}
		if s, err := Sum(terms...); err == nil {
			t.Errorf("the sum of %v is %d", terms, s)
		}
	}
}
