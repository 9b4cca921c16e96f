//go:build gpu

package cuda

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// cacheWriteCall: In x (B, T, columns), cache (B, capacity, width), at (B); Out x.
func cacheWriteCall(d *Device, c *device.Call) error {
	with := c.Attributes.(kernel.CacheWrite)
	x, cache, at := c.In[0], c.In[1], c.In[2]
	if err := need("positions", at, device.Int32); err != nil {
		return err
	}
	capacity := cache.Shape[1]
	first := max(0, with.Tokens-capacity)
	name, unit := "cache_write", 1
	if pack := packWidth(x.DType); with.Columns%pack == 0 && with.From%pack == 0 && with.Width%pack == 0 && packed(x, cache) {
		name, unit = "cache_write_packs", pack
	}
	f, err := d.kernel("cache", name, x.DType)
	if err != nil {
		return err
	}
	n := int64(with.Rows) * int64(with.Tokens-first) * int64(with.Width/unit)
	a := d.begin()
	a.tensors(x, cache, at)
	a.i64(n)
	for _, v := range []int{with.Tokens, first, with.Columns / unit, with.From / unit, with.Width / unit, capacity} {
		a.i32(v)
	}
	if err := d.launch(f, flatScalarGrid(n), 256, 0); err != nil {
		return err
	}
	if c.Out[0].Addr == x.Addr {
		return nil
	}
	return d.copy(x, c.Out[0])
}

// attentionDecodeCall: In q (1, B, columns), keys, values (B, capacity, Hkv·D), at (B); Out (1, B, H·D).
func attentionDecodeCall(d *Device, c *device.Call) error {
	with := c.Attributes.(kernel.AttentionDecode)
	q, keys, values, at := c.In[0], c.In[1], c.In[2], c.In[3]
	if err := need("positions", at, device.Int32); err != nil {
		return err
	}
	f, err := d.kernelWith(kernelKey{file: "cache", name: "attention_decode", elem: q.DType, head: with.Size}, fmt.Sprintf("-DHEAD=%d", with.Size))
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(q, keys, values, at, c.Out[0])
	for _, v := range []int{with.Heads, with.KVHeads, keys.Shape[1], with.Columns, with.Window} {
		a.i32(v)
	}
	a.real(with.Scale, f.double)
	a.real(with.SoftCap, f.double)
	return d.launch(f, grid{x: int64(with.Rows) * int64(with.Heads)}, 256, 0)
}

// argmaxCall: In x (…, stride); Out y (rows).
func argmaxCall(d *Device, c *device.Call) error {
	with := c.Attributes.(kernel.ArgMax)
	f, err := d.kernel("cache", "argmax", c.In[0].DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(c.In[0], c.Out[0])
	a.i32(with.Columns)
	a.i64(int64(with.Stride))
	return d.launch(f, grid{x: int64(with.Rows)}, 1024, 0)
}
