package device_test

import (
	"math"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
)

// Every bfloat16 survives the way through float32, and what lies between two
// rounds to the nearer one, or to the even one in the middle.
func TestBFloat16(t *testing.T) {
	for h := range 1 << 16 {
		v := device.BFloat(h).Float32()
		if got := device.RoundToBFloat(v); got != device.BFloat(h) && v == v {
			t.Fatalf("%#x came back as %#x", h, got)
		}
		if v != v && device.RoundToBFloat(v)&0x7f == 0 {
			t.Fatalf("NaN %#x became an infinity", h)
		}
	}
	for bits, want := range map[uint32]device.BFloat{
		0x3f808000: 0x3f80, 0x3f808001: 0x3f81, 0x3f818000: 0x3f82, 0x7f7fffff: 0x7f80, 0x7f800001: 0x7fc0,
	} {
		if got := device.RoundToBFloat(math.Float32frombits(bits)); got != want {
			t.Errorf("%#x rounds to %#x, want %#x", bits, got, want)
		}
	}
}
