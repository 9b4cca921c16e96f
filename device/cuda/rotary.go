//go:build gpu

package cuda

import (
	"math"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// rotaryTableCall: Out cos and sin (T, D).
func rotaryTableCall(d *Device, c *device.Call) error {
	f, err := d.kernel("rotary", "rotary_table", c.Out[0].DType)
	if err != nil {
		return err
	}
	a := d.begin()
	with := c.Attributes.(kernel.RotaryTable)
	var places device.Tensor
	if with.At {
		places = c.In[0]
	}
	a.tensors(c.Out[0], c.Out[1], places)
	a.i32(with.Positions)
	a.i32(with.Size)
	a.i32(with.Offset)
	a.flag(with.Single)
	a.f64(with.Gain())
	for _, f := range with.Frequencies() {
		a.f64(f)
	}
	return d.launch(f, flatScalarGrid(int64(with.Positions)*int64(with.Size)/2), 256, 0)
}

// ropeCall: In x (B, T, heads·D), cos, sin (T, R); Out y.
func ropeCall(inverse bool) func(*Device, *device.Call) error {
	return func(d *Device, c *device.Call) error {
		y := c.Out[0]
		with := c.Attributes.(kernel.Rope)
		T, heads, size := with.Positions, with.Heads, with.Size
		width := packWidth(y.DType)
		name, threads := "rope", y.Elements()/2
		vec := with.Turned == size && size > 0 && heads > 0 && size%(2*width) == 0 && packed(c.In[0], c.In[1], c.In[2], y)
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
		if !vec {
			a.i32(with.Turned)
		}
		a.flag(inverse)
		return d.launch(f, flatScalarGrid(threads), 256, 0)
	}
}
