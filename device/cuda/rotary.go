//go:build gpu

package cuda

import (
	"math"

	"github.com/tidemark-lab/tidemark/device"
)

// rotaryTableCall: Out cos and sin (T, D). Ints: T, D, offset, single. Floats:
// theta.
func rotaryTableCall(d *Device, c *device.Call) error {
	f, err := d.kernel("rotary", "rotary_table", c.Out[0].DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(c.Out[0], c.Out[1])
	for _, n := range c.Ints[:4] {
		a.i32(int(n))
	}
	a.f64(c.Floats[0])
	return d.launch(f, flatScalarGrid(c.Ints[0]*c.Ints[1]/2), 256, 0)
}

// ropeCall: In x (B, T, heads·D), cos, sin (T, D); Out y. Ints: B, T, heads, D.
func ropeCall(inverse bool) func(*Device, *device.Call) error {
	return func(d *Device, c *device.Call) error {
		y := c.Out[0]
		T, heads, size := int(c.Ints[1]), int(c.Ints[2]), int(c.Ints[3])
		width := packWidth(y.DType)
		name, threads := "rope", y.Elements()/2
		vec := size > 0 && heads > 0 && size%(2*width) == 0 && packed(c.In[0], c.In[1], c.In[2], y)
		if vec {
			// HEADS of rotary.cu is 2.
			packs := y.Elements() / int64(heads*size) * int64((heads+1)/2) * int64(size/2/width)
			if vec = packs <= math.MaxUint32; vec {
				name, threads = "rope_packs", packs
			}
		}
		f, err := d.kernel("rotary", name, y.DType)
		if err != nil {
			return err
		}
		a := d.begin()
		a.tensors(c.In[0], c.In[1], c.In[2], y)
		if vec {
			a.i32(int(threads))
		} else {
			a.i64(threads)
		}
		a.i32(T)
		a.i32(heads)
		a.i32(size)
		a.flag(inverse)
		return d.launch(f, flatScalarGrid(threads), 256, 0)
	}
}
