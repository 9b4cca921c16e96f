//go:build gpu

package cuda

// #include "driver.h"
import "C"

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidemark-lab/tidemark/device"
)

// mmaTile is how a block of an attention kernel on tensor cores is laid out: a
// tile of rows × cols scores for a number of warps, of which split groups divide
// the columns among themselves. A multiprocessor should have room for blocks of
// them, which bounds their registers. With keep 1, the forward kernel's queries
// stay in registers.
type mmaTile struct{ rows, cols, warps, split, blocks, keep int }

// mmaKernel is an attention kernel on tensor cores: what it keeps in shared
// memory, in tiles of positions of bf16 and in numbers for each column.
type mmaKernel struct {
	file, name         string
	rowTiles, colTiles int
	colNumbers         int
	// small are the tiles for heads of up to 64 elements, large those for up to
	// 128. They are tried in order: the first whose memory the card has.
	small, large []mmaTile
}

var (
	mmaForwardKernel = mmaKernel{"mma_forward", "mma_attention_forward", 1, 4, 0,
		[]mmaTile{{128, 64, 4, 1, 3, 0}}, []mmaTile{{64, 64, 4, 1, 2, 1}, {64, 32, 4, 1, 2, 1}}}
	mmaBackwardQKernel = mmaKernel{"mma_backward_q", "mma_attention_backward_q", 2, 4, 0,
		[]mmaTile{{128, 64, 4, 1, 2, 0}, {128, 32, 4, 1, 2, 0}}, []mmaTile{{64, 64, 4, 1, 2, 0}, {64, 32, 4, 1, 2, 0}}}
	mmaBackwardKVKernel = mmaKernel{"mma_backward_kv", "mma_attention_backward_kv", 2, 4, 4,
		[]mmaTile{{128, 32, 4, 1, 2, 0}}, []mmaTile{{64, 64, 8, 2, 1, 0}, {64, 32, 4, 1, 2, 0}}}
)

var mmaKernels = []*mmaKernel{&mmaForwardKernel, &mmaBackwardQKernel, &mmaBackwardKVKernel}

// mmaHead is the largest head size of the kernels on tensor cores.
const mmaHead = 128

// tile is the kernel's for a head size on a card with so much shared memory for
// a block, if there is one.
func (k *mmaKernel) tile(size, sharedBytes int) (mmaTile, bool) {
	list := k.small
	if size > 64 {
		list = k.large
	}
	for _, t := range list {
		if bytes := k.sharedBytes(t, size); bytes <= sharedBytes {
			// There is no use in registers for more blocks than have memory.
			t.blocks = min(t.blocks, sharedBytes/bytes)
			return t, true
		}
	}
	return mmaTile{}, false
}

// sharedBytes is the memory that a block of the kernel needs.
func (k *mmaKernel) sharedBytes(t mmaTile, size int) int {
	return (k.rowTiles*t.rows+k.colTiles*t.cols)*(2*size+16) + 4*k.colNumbers*t.cols
}

// tensorCores reports whether attention of a shape takes the kernels on tensor
// cores: bf16, on compute capability 8.0 or newer, with heads of whole fragments
// and every position's head at a multiple of 16 bytes. The rest takes the
// kernels of attention.go.
func (d *Device) tensorCores(s *attentionShape, ts ...device.Tensor) bool {
	architecture, err := strconv.Atoi(strings.TrimPrefix(d.architecture, "sm_"))
	if err != nil || architecture < 80 || s.Size%16 != 0 || s.Size > mmaHead || !(s.Scale > 0) {
		return false
	}
	for _, stride := range []int{s.qStride, s.kStride, s.vStride, s.oStride} {
		if stride%8 != 0 {
			return false
		}
	}
	for i := range ts {
		if ts[i].DType != device.BFloat16 || ts[i].Addr%16 != 0 {
			return false
		}
	}
	for _, k := range mmaKernels {
		if _, ok := k.tile(s.Size, d.sharedBytes); !ok {
			return false
		}
	}
	return true
}

// mmaFunction finds a kernel compiled for a head size and options, with its tile and its
// shared memory.
func (d *Device) mmaFunction(k *mmaKernel, s *attentionShape) (*function, mmaTile, int, error) {
	t, _ := k.tile(s.Size, d.sharedBytes)
	bytes := k.sharedBytes(t, s.Size)
	key := kernelKey{file: k.file, name: k.name, elem: device.BFloat16, head: s.Size, options: s.options()}
	for _, n := range []int{t.rows, t.cols, t.warps, t.split, t.blocks, t.keep} {
		key.head = key.head<<8 | n
	}
	known := d.functions[key] != nil
	f, err := d.kernelWith(key, t.defines(s.Size)+key.options)
	if err == nil && !known {
		err = result(C.tidemark_allow_shared(d.ccontext(), f.c(), C.int(bytes)))
	}
	return f, t, bytes, err
}

// defines are the tile's, for a head size.
func (t mmaTile) defines(size int) string {
	return fmt.Sprintf("-DHEAD=%d -DROWS=%d -DCOLS=%d -DWARPS=%d -DSPLIT=%d -DMIN_BLOCKS=%d -DKEEP=%d", size, t.rows, t.cols, t.warps,
		t.split, t.blocks, t.keep)
}

// mmaForward is attentionForward on tensor cores.
func (d *Device) mmaForward(q, k, v, o, lse device.Tensor, s *attentionShape) error {
	f, t, bytes, err := d.mmaFunction(&mmaForwardKernel, s)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(q, k, v, o, lse)
	d.attentionArguments(a, s, false, s.oStride)
	return d.launch(f, grid{x: int64(s.Batch * s.Heads), y: tiles(s.Queries, t.rows)}, 32*t.warps, bytes)
}

// mmaBackward is attentionBackward on tensor cores.
func (d *Device) mmaBackward(q, k, v, o, dout, lse, delta, dq, dk, dv device.Tensor, s *attentionShape) error {
	if err := d.mmaBackwardQ(q, k, v, o, dout, lse, delta, dq, s); err != nil {
		return err
	}
	return d.mmaBackwardKV(q, k, v, dout, lse, delta, dk, dv, s)
}

// mmaBackwardQ writes delta and dq.
func (d *Device) mmaBackwardQ(q, k, v, o, dout, lse, delta, dq device.Tensor, s *attentionShape) error {
	f, t, bytes, err := d.mmaFunction(&mmaBackwardQKernel, s)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(q, k, v, o, dout, lse, delta, dq)
	d.attentionArguments(a, s, false, s.oStride, s.oStride, s.qStride)
	return d.launch(f, grid{x: int64(s.Batch * s.Heads), y: tiles(s.Queries, t.rows)}, 32*t.warps, bytes)
}

// mmaBackwardKV reads delta and writes dk and dv.
func (d *Device) mmaBackwardKV(q, k, v, dout, lse, delta, dk, dv device.Tensor, s *attentionShape) error {
	f, t, bytes, err := d.mmaFunction(&mmaBackwardKVKernel, s)
	if err != nil {
		return err
	}
	a := d.begin()
	a.tensors(q, k, v, dout, lse, delta, dk, dv)
	d.attentionArguments(a, s, false, s.oStride, s.kStride, s.vStride)
	return d.launch(f, grid{x: int64(s.Batch * s.KVHeads), y: tiles(s.Keys, t.rows)}, 32*t.warps, bytes)
}
