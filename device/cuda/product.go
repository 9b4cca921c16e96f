//go:build gpu

package cuda

// #include "driver.h"
import "C"

import (
	"encoding/binary"
	"fmt"

	"gorgonia.org/cu"

	"github.com/tidemark-lab/tidemark/device"
)

// productKey is what the choice of a product's algorithm depends on.
type productKey struct {
	m, n, k       int
	lda, ldb, ldc int
	ta, tb, bias  bool
	operands, to  device.DType
	alignment     uint64
}

// fastProduct is a product of matrices by cuBLASLt, summed in float32, with the
// algorithms that it proposes.
type fastProduct struct {
	product    *C.struct_tidemark_product // nil where cuBLASLt has nothing
	algorithms int
	algorithm  int
	tuned      bool
}

// alignmentOf is the largest power of two up to 256 that divides all addresses.
func alignmentOf(ts ...device.Tensor) uint64 {
	n := uint64(256)
	for _, t := range ts {
		for t.Addr%n != 0 {
			n /= 2
		}
	}
	return n
}

// fastProduct queues c = op(a) · op(b) + beta · c, and + bias in every row unless
// that is the zero Tensor. It reports false where cuBLASLt cannot do it.
//
// Algorithms differ most in how well their tiles divide the result among the
// card's multiprocessors, which cuBLASLt's own guess often misses. So the first
// product of a shape tries what it proposes, and takes the fastest of those that
// give the same bits as the first: which one wins can differ from run to run,
// and what is computed does not.
func (d *Device) fastProduct(m, n, k int, a, b matrix, beta float64, c matrix, bias device.Tensor) (bool, error) {
	if a.DType != b.DType || a.DType != device.Float32 && a.DType != device.BFloat16 ||
		c.DType != a.DType && c.DType != device.Float32 || k == 0 {
		return false, nil
	}
	key := productKey{m: m, n: n, k: k, lda: a.ld, ldb: b.ld, ldc: c.ld, ta: a.transposed, tb: b.transposed, bias: bias.Addr != 0,
		operands: a.DType, to: c.DType, alignment: alignmentOf(a.Tensor, b.Tensor, c.Tensor)}
	p := d.products[key]
	if p == nil {
		p = d.newProduct(key)
		d.products[key] = p
	}
	if p.product == nil {
		return false, nil
	}
	if bias.Addr != 0 && bias.DType != c.DType {
		var err error
		if bias, err = d.roundedBias(bias, c.DType); err != nil || bias.Addr == 0 {
			return false, err
		}
	}
	run := func(algorithm int) error {
		return d.put(queued{product: p.product, m: m, n: n, k: k, algorithm: C.int(algorithm), beta: C.float(beta),
			a: C.uint64_t(a.Addr), b: C.uint64_t(b.Addr), c: C.uint64_t(c.Addr), bias: C.uint64_t(bias.Addr),
			workspace: C.uint64_t(d.blasWorkspace.Addr)}, nil)
	}
	if !p.tuned && beta == 0 {
		p.tuned = true
		if err := d.tune(p, key, c, run); err != nil {
			return false, err
		}
	}
	return true, run(p.algorithm)
}

func (d *Device) newProduct(k productKey) *fastProduct {
	flag := func(v bool) C.int {
		if v {
			return 1
		}
		return 0
	}
	p := &fastProduct{}
	var n C.int
	bytes := int64(0)
	if d.blasWorkspace.Addr != 0 {
		bytes = d.blasWorkspace.Bytes()
	}
	r := C.tidemark_product_create(d.ccontext(), d.blas, C.int(d.options.Products), blasTypes[k.operands], blasTypes[k.to],
		flag(k.ta), flag(k.tb), C.int(k.m), C.int(k.n), C.int(k.k), C.int64_t(k.lda), C.int64_t(k.ldb), C.int64_t(k.ldc), flag(k.bias), C.size_t(bytes), C.uint(k.alignment),
		&p.product, &n)
	if r != 0 {
		p.product = nil
	}
	p.algorithms = int(n)
	return p
}

// closeProducts frees what cuBLASLt made.
func (d *Device) closeProducts() {
	for _, p := range d.products {
		if p.product != nil {
			C.tidemark_product_destroy(p.product)
		}
	}
	clear(d.products)
}

// checksumBytes at the beginning of the kernels' workspace are for checksums.
const checksumBytes = 256

// roundedBias is a bias in the type of the result, which is what cuBLASLt adds,
// in working memory; the zero Tensor when there is none for it.
func (d *Device) roundedBias(bias device.Tensor, to device.DType) (device.Tensor, error) {
	r := d.spare(to)
	if r.Addr == 0 || r.Addr == d.blasWorkspace.Addr || r.Bytes() < checksumBytes+bias.Elements()*to.Size() {
		return device.Tensor{}, nil
	}
	r.Addr += checksumBytes
	r.Shape = bias.Shape
	return r, d.cast(bias, r, false)
}

// tunedFLOPs is the largest product that is tuned, by the type of its operands:
// the tiles of larger ones divide well.
var tunedFLOPs = map[device.DType]float64{device.Float32: 2e11, device.BFloat16: 4e12}

// tune measures a product's algorithms.
func (d *Device) tune(p *fastProduct, key productKey, c matrix, run func(int) error) error {
	work := 2 * float64(key.m) * float64(key.n) * float64(key.k)
	sum := d.workspace
	if p.algorithms < 2 || work > tunedFLOPs[key.operands] || work < 1e7 || c.ld != key.n || sum.Addr == 0 {
		return nil
	}
	sum.Spec = device.Spec{DType: device.Int64, Shape: []int{1}}
	if err := d.submit(); err != nil {
		return err
	}
	var events [2]cu.Event
	err := d.do(func() (err error) {
		for i := range events {
			if events[i], err = cu.MakeEvent(0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("making an event: %w", err)
	}
	defer d.do(func() error {
		for i := range events {
			cu.DestroyEvent(&events[i])
		}
		return nil
	})
	var first uint64
	var best, guess float64
	for i := range p.algorithms {
		// The first run, whose result is checked, also loads the code.
		if err := run(i); err != nil {
			if i == 0 {
				return err
			}
			continue
		}
		bits, err := d.checksum(c.Tensor, int64(key.m)*int64(key.n)*c.DType.Size()/4, sum)
		if err != nil {
			return err
		}
		if i == 0 {
			first = bits
		}
		if bits != first {
			continue
		}
		ms, err := d.duration(events, func() error {
			return run(i)
		})
		if err != nil {
			return err
		}
		if i == 0 {
			best, guess = ms, ms
		} else if ms < best*0.99 {
			best, p.algorithm = ms, i
		}
	}
	if d.profile != nil {
		d.profile.tuned = true
		fmt.Fprintf(d.profile.out, "%v product %d x %d x %d, transposed %v %v, bias %v: algorithm %d of %d, %.1f us against %.1f\n",
			key.operands, key.m, key.n, key.k, key.ta, key.tb, key.bias, p.algorithm, p.algorithms, 1000*best, 1000*guess)
	}
	return nil
}

// duration is the least time of three runs, in milliseconds.
func (d *Device) duration(events [2]cu.Event, run func() error) (float64, error) {
	least := 0.0
	for i := range 3 {
		if err := d.do(func() error { return events[0].Record(d.stream) }); err != nil {
			return 0, err
		}
		if err := run(); err != nil {
			return 0, err
		}
		var ms float64
		err := d.do(func() (err error) {
			if err = events[1].Record(d.stream); err != nil {
				return err
			}
			if err = events[1].Synchronize(); err != nil {
				return err
			}
			ms, err = events[0].Elapsed(events[1])
			return err
		})
		if err != nil {
			return 0, err
		}
		if i == 0 || ms < least {
			least = ms
		}
	}
	return least, nil
}

// checksum is a sum of n words of four bytes; sum is memory for it.
func (d *Device) checksum(x device.Tensor, n int64, sum device.Tensor) (uint64, error) {
	f, err := d.kernel("checksum", "checksum", device.Float32)
	if err != nil {
		return 0, err
	}
	if err := d.zero(sum); err != nil {
		return 0, err
	}
	a := d.begin()
	a.tensors(x, sum)
	a.i64(n)
	if err := d.launch(f, grid{x: int64(4 * d.card.Processors)}, 256, 0); err != nil {
		return 0, err
	}
	raw := make([]byte, 8)
	if err := d.Download(raw, sum); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(raw), nil
}
