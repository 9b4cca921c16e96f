//go:build gpu

package cuda

import "github.com/tidemark-lab/tidemark/device"

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
		f, err := d.kernel("rotary", "rope", c.Out[0].DType)
		if err != nil {
			return err
		}
		pairs := c.Out[0].Elements() / 2
		a := d.begin()
		a.tensors(c.In[0], c.In[1], c.In[2], c.Out[0])
		a.i64(pairs)
		a.i32(int(c.Ints[1]))
		a.i32(int(c.Ints[2]))
		a.i32(int(c.Ints[3]))
		a.flag(inverse)
		return d.launch(f, flatScalarGrid(pairs), 256, 0)
	}
}
