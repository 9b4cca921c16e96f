//go:build gpu

package cuda

// #include "driver.h"
import "C"

import (
	"fmt"
	"math"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// attentionShape describes attention: q (batch, queries, heads·size), k
// and v (batch, keys, kvHeads·size), contiguous within a position.
type attentionShape struct {
	kernel.Attention
	// Elements from position to position; 0 means that positions follow each
	// other without a gap.
	qStride, kStride, vStride, oStride int

	seed uint64 // of the weights that are dropped
	pass int64
}

// options are the definitions that compile kernels for what the shape asks for
// beside causal attention over all earlier keys; see mask.cuh.
func (s *attentionShape) options() string {
	defines := ""
	for _, o := range [...]struct {
		set    bool
		define string
	}{{s.SoftCap != 0, " -DCAPPED=1"}, {s.Window != 0, " -DWINDOWED=1"}, {s.Bidirectional, " -DBOTHWAYS=1"}, {s.Probability != 0, " -DDROPPING=1"}} {
		if o.set {
			defines += o.define
		}
	}
	return defines
}

func (s *attentionShape) strides() {
	set := func(p *int, heads int) {
		if *p == 0 {
			*p = heads * s.Size
		}
	}
	set(&s.qStride, s.Heads)
	set(&s.kStride, s.KVHeads)
	set(&s.vStride, s.KVHeads)
	set(&s.oStride, s.Heads)
}

func (s *attentionShape) check() error {
	if s.KVHeads <= 0 || s.Heads%s.KVHeads != 0 {
		return fmt.Errorf("attention: %d query heads are not a multiple of %d key heads", s.Heads, s.KVHeads)
	}
	if s.Keys < s.Queries && !(s.Bidirectional && s.Window == 0) {
		return fmt.Errorf("attention: %d queries for %d keys", s.Queries, s.Keys)
	}
	if s.Size <= 0 || s.Size > 256 {
		return fmt.Errorf("attention: heads of %d elements; the kernels take 1 to 256", s.Size)
	}
	return nil
}

// attentionTile is the tile of scores that a block works on.
type attentionTile struct{ rows, cols int }

// attentionKernel is what a kernel keeps in shared memory beside the columns'
// statistics: whole tiles of positions for rows and for columns, and tiles of
// scores, the first as it is and the second transposed.
type attentionKernel struct {
	file, name         string
	rowTiles, colTiles int
	scores             int
	// tiles are tried in order: the first whose memory the card has. Wide heads
	// and double numbers start with later ones, which keep their sums in
	// registers.
	tiles []attentionTile
}

var (
	attentionForwardKernel = attentionKernel{"attention_forward", "attention_forward", 1, 2, 1,
		[]attentionTile{{64, 64}, {64, 32}, {32, 32}, {16, 16}, {16, 8}}}
	attentionBackwardQKernel = attentionKernel{"attention_backward", "attention_backward_q", 2, 2, 1,
		[]attentionTile{{64, 32}, {64, 32}, {32, 32}, {16, 16}, {16, 8}}}
	attentionBackwardKVKernel = attentionKernel{"attention_backward", "attention_backward_kv", 2, 2, 1,
		[]attentionTile{{64, 32}, {64, 32}, {32, 32}, {16, 16}, {16, 8}}}
	attentionBackwardKernel = attentionKernel{"attention_shared", "attention_backward", 2, 2, 2,
		[]attentionTile{{64, 32}, {32, 32}, {32, 32}, {16, 16}}}
)

// sharedBytes is the memory that a block of the kernel needs.
func (k *attentionKernel) sharedBytes(t attentionTile, size int, elem int64) int {
	stride := (size+31)/32*32 + 4
	n := (k.rowTiles*t.rows+k.colTiles*t.cols)*stride + t.rows*(t.cols+4) + 2*t.cols
	if k.scores == 2 {
		n += t.cols * (t.rows + 4)
	}
	return n * int(elem)
}

// attentionTile finds the kernel's tile for a head size.
func (d *Device) attentionTile(k *attentionKernel, s *attentionShape, elem device.DType) (attentionTile, int, error) {
	real, err := realOf(elem)
	if err != nil {
		return attentionTile{}, 0, err
	}
	tiles := k.tiles
	if s.Size > 64 || real == device.Float64 {
		tiles = tiles[1:]
	}
	if s.Size > 128 {
		tiles = tiles[1:]
	}
	for _, t := range tiles {
		if bytes := k.sharedBytes(t, s.Size, real.Size()); bytes <= d.sharedBytes {
			return t, bytes, nil
		}
	}
	return attentionTile{}, 0, fmt.Errorf("attention: heads of %d elements need more shared memory than the card's %d bytes",
		s.Size, d.sharedBytes)
}

// attentionFunction is a kernel compiled for a head size and a tile.
func (d *Device) attentionFunction(file, name string, s *attentionShape, elem device.DType, t attentionTile, bytes int) (*function, error) {
	key := kernelKey{file: file, name: name, elem: elem, head: s.Size<<16 | t.rows<<8 | t.cols, options: s.options()}
	known := d.functions[key] != nil
	defines := fmt.Sprintf("-DHEAD=%d -DROWS=%d -DCOLS=%d", s.Size, t.rows, t.cols) + key.options
	f, err := d.kernelWith(key, defines)
	if err == nil && !known {
		err = result(C.tidemark_allow_shared(d.ccontext(), f.c(), C.int(bytes)))
	}
	return f, err
}

// attentionKernel finds a kernel with its tile and its shared memory.
func (d *Device) attentionKernel(k *attentionKernel, s *attentionShape, elem device.DType) (*function, attentionTile, int, error) {
	t, bytes, err := d.attentionTile(k, s, elem)
	if err != nil {
		return nil, t, 0, err
	}
	f, err := d.attentionFunction(k.file, k.name, s, elem, t, bytes)
	return f, t, bytes, err
}

func tiles(n, rows int) int64 { return int64((n + rows - 1) / rows) }

// attentionForward writes o and lse (batch, heads, queries).
func (d *Device) attentionForward(q, k, v, o, lse device.Tensor, s attentionShape) error {
	if err := s.check(); err != nil {
		return err
	}
	s.strides()
	if d.tensorCores(&s, q, k, v, o) {
		return d.mmaForward(q, k, v, o, lse, &s)
	}
	f, t, bytes, err := d.attentionKernel(&attentionForwardKernel, &s, q.DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(q, k, v, o, lse)
	d.attentionArguments(a, &s, f.double, s.oStride)
	return d.launch(f, grid{x: int64(s.Batch * s.Heads), y: tiles(s.Queries, t.rows)}, 128, bytes)
}

// attentionArguments places what follows the tensors.
func (d *Device) attentionArguments(a *arguments, s *attentionShape, double bool, more ...int) {
	a.i32(s.Queries)
	a.i32(s.Keys)
	a.i32(s.Heads)
	a.i32(s.KVHeads)
	for _, n := range []int{s.qStride, s.kStride, s.vStride} {
		a.i64(int64(n))
	}
	for _, n := range more {
		a.i64(int64(n))
	}
	a.real(s.Scale, double)
	a.place(0, 8) // a structure with numbers of 8 bytes
	a.i32(s.Window)
	a.u32(uint32(math.Ceil(float64(float32(s.Probability)) * (1 << 24))))
	a.u64(s.seed)
	a.u64(s.Stream(s.pass))
	a.real(s.SoftCap, double)
	a.real(1/(1-s.Probability), double)
}

// attentionBackward writes dq, dk and dv, which have the strides of q, k and v;
// dout has o's. dq may be o. delta is scratch memory of (batch, heads, queries).
// With a workspace that has room for the counters, five products are computed,
// else seven.
func (d *Device) attentionBackward(q, k, v, o, dout, lse, delta, dq, dk, dv device.Tensor, s attentionShape) error {
	if err := s.check(); err != nil {
		return err
	}
	if n := int64(s.Batch * s.Heads * s.Queries); delta.Addr == 0 || delta.Elements() < n {
		return fmt.Errorf("attention's gradient needs scratch memory for %d elements", n)
	}
	s.strides()
	if d.tensorCores(&s, q, k, v, o, dout, dq, dk, dv) {
		return d.mmaBackward(q, k, v, o, dout, lse, delta, dq, dk, dv, &s)
	}
	if shared, err := d.attentionBackwardShared(q, k, v, o, dout, lse, delta, dq, dk, dv, &s); shared || err != nil {
		return err
	}
	f, t, bytes, err := d.attentionKernel(&attentionBackwardQKernel, &s, q.DType)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(q, k, v, o, dout, lse, delta, dq)
	d.attentionArguments(a, &s, f.double, s.oStride, s.oStride, s.qStride)
	err = d.launch(f, grid{x: int64(s.Batch * s.Heads), y: tiles(s.Queries, t.rows)}, 128, bytes)
	if err != nil {
		return err
	}
	f, t, bytes, err = d.attentionKernel(&attentionBackwardKVKernel, &s, q.DType)
	if err != nil {
		return err
	}
	a = d.begin()
	a.tensors(q, k, v, dout, lse, delta, dk, dv)
	d.attentionArguments(a, &s, f.double, s.oStride, s.kStride, s.vStride)
	return d.launch(f, grid{x: int64(s.Batch * s.KVHeads), y: tiles(s.Keys, t.rows)}, 128, bytes)
}

// attentionBackwardShared is attentionBackward by the kernel that computes every
// product once. It reports false when it cannot be used.
func (d *Device) attentionBackwardShared(q, k, v, o, dout, lse, delta, dq, dk, dv device.Tensor, s *attentionShape) (bool, error) {
	if q.DType == device.BFloat16 { // dq is summed up in memory, which must not round it
		return false, nil
	}
	t, bytes, err := d.attentionTile(&attentionBackwardKernel, s, q.DType)
	if err != nil {
		return false, nil // the other kernels need less shared memory
	}
	counters := device.Tensor{Addr: d.workspace.Addr,
		Spec: device.Spec{DType: device.Int32, Shape: []int{s.Batch * s.Heads * int(tiles(s.Queries, t.cols))}}}
	if counters.Addr == 0 || counters.Bytes() > d.workspace.Bytes() {
		return false, nil
	}
	f, err := d.attentionFunction(attentionBackwardKernel.file, attentionBackwardKernel.name, s, q.DType, t, bytes)
	if err != nil {
		return false, err
	}
	if err := d.zero(counters); err != nil {
		return false, err
	}
	g, err := d.attentionFunction(attentionBackwardKernel.file, "attention_delta", s, q.DType, t, bytes)
	if err != nil {
		return false, err
	}
	a := d.begin()
	a.tensors(o, dout, delta)
	a.i32(s.Queries)
	a.i32(s.Heads)
	a.i64(int64(s.oStride))
	a.i64(int64(s.oStride))
	if err := d.launch(g, grid{x: int64(s.Batch * s.Heads), y: tiles(s.Queries, t.rows)}, 128, bytes); err != nil {
		return false, err
	}
	a = d.begin()
	a.tensors(q, k, v, dout, lse, delta, dq, dk, dv, counters)
	d.attentionArguments(a, s, f.double, s.oStride, s.qStride, s.kStride, s.vStride)
	return true, d.launch(f, grid{x: int64(s.Batch * s.KVHeads), y: tiles(s.Keys, t.rows)}, 128, bytes)
}

// attentionOf reads a call's attributes.
func attentionOf(c *device.Call) attentionShape {
	return attentionShape{Attention: c.Attributes.(kernel.Attention), seed: c.Seed, pass: c.Pass}
}

func attentionForwardCall(d *Device, c *device.Call) error {
	return d.attentionForward(c.In[0], c.In[1], c.In[2], c.Out[0], c.Out[1], attentionOf(c))
}

func attentionBackwardCall(d *Device, c *device.Call) error {
	return d.attentionBackward(c.In[0], c.In[1], c.In[2], c.In[3], c.In[4], c.In[5], callScratch(c, c.In[5].DType),
		c.Out[0], c.Out[1], c.Out[2], attentionOf(c))
}

// packed splits a tensor (batch, positions, 3·heads·size) into the places where
// its three parts begin, and sets the strides that go with it.
func (s *attentionShape) packed(t device.Tensor) (q, k, v device.Tensor) {
	width := s.Heads * s.Size
	s.qStride, s.kStride, s.vStride = 3*width, 3*width, 3*width
	q, k, v = t, t, t
	k.Addr += uint64(int64(width) * t.DType.Size())
	v.Addr += uint64(2 * int64(width) * t.DType.Size())
	return q, k, v
}

func attentionPackedForwardCall(d *Device, c *device.Call) error {
	s := attentionOf(c)
	q, k, v := s.packed(c.In[0])
	return d.attentionForward(q, k, v, c.Out[0], c.Out[1], s)
}

func attentionPackedBackwardCall(d *Device, c *device.Call) error {
	s := attentionOf(c)
	q, k, v := s.packed(c.In[0])
	dq, dk, dv := s.packed(c.Out[0])
	return d.attentionBackward(q, k, v, c.In[1], c.In[2], c.In[3], callScratch(c, c.In[3].DType), dq, dk, dv, s)
}
