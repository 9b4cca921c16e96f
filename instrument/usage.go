package instrument

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-lab/tidemark/device/size"
)

// ByCategory is allocated bytes, indexed by [Category].
type ByCategory [NumCategories]int64

// Total is the sum over all categories in bytes.
func (b ByCategory) Total() int64 {
	var sum int64
	for _, n := range b {
		sum += n
	}
	return sum
}

// String says what memory is for, the most first, such as "activation 674.9
// MiB (60 %), optimizer state 450.0 MiB (40 %)", or that there is none.
func (b ByCategory) String() string {
	cs := slices.DeleteFunc(Categories(), func(c Category) bool { return b[c] == 0 })
	if len(cs) == 0 {
		return "nothing"
	}
	slices.SortStableFunc(cs, func(x, y Category) int { return cmp.Compare(b[y], b[x]) })
	parts := make([]string, len(cs))
	for i, c := range cs {
		share := fmt.Sprintf("%.0f %%", 100*float64(b[c])/float64(b.Total()))
		if share == "0 %" {
			share = "<1 %"
		}
		parts[i] = fmt.Sprintf("%s %s (%s)", strings.ReplaceAll(c.String(), "_", " "), size.Text(b[c]), share)
	}
	return strings.Join(parts, ", ")
}

// MarshalJSON writes an object from category names to bytes in stacking order
// and leaves out categories that hold nothing.
func (b ByCategory) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for _, c := range Categories() {
		if b[c] == 0 {
			continue
		}
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		fmt.Fprintf(&out, "%q:%d", c.String(), b[c])
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (b *ByCategory) UnmarshalJSON(data []byte) error {
	var m map[Category]int64
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("bytes by category: %w", err)
	}
	*b = ByCategory{}
	for c, n := range m {
		b[c] = n
	}
	return nil
}

// Usage is memory at one moment, or a peak over a span of time.
//
// As a peak, AllocatedBytes and ReservedBytes are each the greatest value over
// the span, and the two need not have been reached at the same moment: their
// difference says nothing about cached memory at any moment. ByCategory is
// then the state at the moment of the allocated peak (the first, if it was
// reached more than once), and adds up to AllocatedBytes.
type Usage struct {
	AllocatedBytes int64
	ReservedBytes  int64
	ByCategory     ByCategory
}

// raise makes u the peak of itself and of the moment now.
func (u *Usage) raise(now *Usage) {
	if now.AllocatedBytes > u.AllocatedBytes {
		u.AllocatedBytes = now.AllocatedBytes
		u.ByCategory = now.ByCategory
	}
	if now.ReservedBytes > u.ReservedBytes {
		u.ReservedBytes = now.ReservedBytes
	}
}
