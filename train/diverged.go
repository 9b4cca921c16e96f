package train

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tidemark-lab/tidemark/device"
)

// DivergedError says that a number of a training is none any more. Nothing is
// saved after it: what the last save holds is still good.
type DivergedError struct {
	Step  int    // steps done before the one that showed it, or when it was found
	What  string // for example "the loss" or "weight h.0.attn.weight"
	Value float64
}

// Error names the step.
func (e *DivergedError) Error() string {
	return fmt.Sprintf("%s is %v in step %d: the training has diverged (a lower learning rate, warm-up or gradient clipping can help)", e.What, e.Value, e.Step)
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// nonFinite finds the first element of a tensor's bytes that is infinite or no
// number, or only no number where infinities are allowed.
func nonFinite(dt device.DType, b []byte, infinities bool) (float64, bool) {
	bad := func(v float64) bool { return math.IsNaN(v) || !infinities && math.IsInf(v, 0) }
	switch dt {
	case device.Float32:
		// All ones in the exponent.
		const exponent = 0x7f800000
		for ; len(b) >= 4; b = b[4:] {
			u := binary.LittleEndian.Uint32(b)
			if u&exponent == exponent {
				if v := float64(math.Float32frombits(u)); bad(v) {
					return v, true
				}
			}
		}
	case device.Float64:
		for ; len(b) >= 8; b = b[8:] {
			if v := math.Float64frombits(binary.LittleEndian.Uint64(b)); bad(v) {
				return v, true
			}
		}
	case device.BFloat16:
		for ; len(b) >= 2; b = b[2:] {
			u := binary.LittleEndian.Uint16(b)
			if v := float64(math.Float32frombits(uint32(u) << 16)); bad(v) {
				return v, true
			}
		}
	}
	return 0, false
}
