package page

import "encoding/base64"

// packed is a list of integers that the page carries in a form that is short
// for what changes little from one to the next: base64 of a varint for each,
// which is its difference from the entry before (the first's from 0) in zigzag
// order: 0, -1, 1, -2 and so on.
type packed []int64

// MarshalText writes the form.
func (p packed) MarshalText() ([]byte, error) {
	raw := make([]byte, 0, 2*len(p))
	last := int64(0)
	for _, n := range p {
		d := n - last
		last = n
		z := uint64(d)<<1 ^ uint64(d>>63)
		for ; z >= 0x80; z >>= 7 {
			raw = append(raw, byte(z)|0x80)
		}
		raw = append(raw, byte(z))
	}
	return base64.StdEncoding.AppendEncode(nil, raw), nil
}
