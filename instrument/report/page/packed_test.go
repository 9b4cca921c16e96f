package page

import (
	"encoding/base64"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPacked reads lists back as the standard library reads zigzag varints.
func TestPacked(t *testing.T) {
	lists := []packed{nil, {0}, {-1}, {63, 64, -64, -65}, {64, 128, 192}, {-64, -128}, {1 << 52, 0, -1 << 52}, {8191, 8192, 16384}}
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var p packed
		for range 200 {
			p = append(p, r.Int64N(1<<(1+r.IntN(52)))-r.Int64N(1<<(1+r.IntN(52))))
		}
		lists = append(lists, p)
	}
	for _, p := range lists {
		text, err := p.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := base64.StdEncoding.DecodeString(string(text))
		if err != nil {
			t.Fatal(err)
		}
		var got packed
		last := int64(0)
		for len(raw) > 0 {
			d, n := binary.Varint(raw)
			if n <= 0 {
				t.Fatalf("%v: %q ends within a number", p, text)
			}
			raw, last = raw[n:], last+d
			got = append(got, last)
		}
		if !slices.Equal(got, p) {
			t.Errorf("%v comes back as %v", p, got)
		}
	}
}
