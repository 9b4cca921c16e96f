//go:build gpu

package cuda

/*
#cgo noescape tidemark_launch
#cgo nocallback tidemark_launch
#cgo noescape tidemark_product_run
#cgo nocallback tidemark_product_run
#include "driver.h"
*/
import "C"

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/tidemark-lab/tidemark/device"
)

// queued is work on the stream, with all that it depends on: of a kernel, of a
// product of matrices, or of a copy.
type queued struct {
	name     string       // a kernel's
	function C.CUfunction // nil for others

	grid            [3]C.uint
	threads, shared C.uint
	from, to        int // the parameters, in queue.parameters

	product   *C.struct_tidemark_product // nil for others
	m, n, k   int
	algorithm C.int
	beta      C.float
	workspace C.uint64_t

	// The addresses of a product's operands, result and bias; of a copy's source
	// and destination, or the latter alone for zeros.
	a, b, c, bias C.uint64_t
	bytes         C.size_t // that are copied or zeroed
}

// queue is work that waits to be submitted.
type queue struct {
	list       []queued
	parameters []byte
}

func (q *queue) equal(other *queue) bool {
	return slices.Equal(q.list, other.list) && bytes.Equal(q.parameters, other.parameters)
}

// put has the device do something: now, or when what waits is submitted.
// parameters are a kernel's.
func (d *Device) put(w queued, parameters []byte) error {
	q := d.waiting
	if q == nil {
		return d.execute(&w, parameters)
	}
	w.from = len(q.parameters)
	q.parameters = append(q.parameters, parameters...)
	w.to = len(q.parameters)
	q.list = append(q.list, w)
	return nil
}

func (d *Device) execute(w *queued, parameters []byte) error {
	switch {
	case w.function != nil:
		r := C.tidemark_launch(d.ccontext(), d.cstream(), w.function, w.grid[0], w.grid[1], w.grid[2], w.threads, w.shared,
			unsafe.Pointer(&parameters[0]), C.size_t(len(parameters)))
		if r != C.CUDA_SUCCESS {
			return fmt.Errorf("kernel %s: %w", w.name, driverError(r))
		}
	case w.product != nil:
		r := C.tidemark_product_run(d.ccontext(), d.blas, d.cstream(), w.product, w.algorithm, w.a, w.b, w.beta, w.c, w.bias, w.workspace)
		if r != 0 {
			return fmt.Errorf("cuBLASLt's product of %d × %d × %d: error %d", w.m, w.n, w.k, int(r))
		}
	case w.a == 0:
		if err := result(C.tidemark_zero(d.ccontext(), d.cstream(), w.b, w.bytes)); err != nil {
			return fmt.Errorf("zeroing %d bytes: %w", w.bytes, err)
		}
	default:
		if err := result(C.tidemark_copy(d.ccontext(), d.cstream(), w.b, w.a, w.bytes)); err != nil {
			return fmt.Errorf("copying %d bytes: %w", w.bytes, err)
		}
	}
	return nil
}

// run executes all of a queue.
func (d *Device) run(q *queue) error {
	for i := range q.list {
		w := &q.list[i]
		if err := d.execute(w, q.parameters[w.from:w.to]); err != nil {
			return err
		}
	}
	return nil
}

// submit executes what waits, before something that does not go through put: the
// rest of a replay's work is then done at once, too.
func (d *Device) submit() error {
	q := d.waiting
	if q == nil {
		return nil
	}
	d.waiting = nil
	return d.run(q)
}

// replay submits work that is the same as the last time as a CUDA graph.
type replay struct {
	d          *Device
	last, next *queue
	graph      C.CUgraphExec // of last; nil where there is none
	misses     int           // pieces of work in turn that were another than the last
	replayed   int           // how often a graph was launched
}

// mostMisses is how many pieces of work, one after the other, may differ before
// they are no longer looked at.
const mostMisses = 4

// NewReplay prepares to capture work as a CUDA graph, from the second time on
// that it is the same to the last parameter.
func (d *Device) NewReplay() device.Replay { return &replay{d: d, last: &queue{}, next: &queue{}} }

func (r *replay) Run(f func() error) error {
	d := r.d
	if d.profile != nil || d.waiting != nil || r.misses >= mostMisses {
		return f()
	}
	q := r.next
	q.list, q.parameters = q.list[:0], q.parameters[:0]
	d.waiting = q
	err := f()
	whole := d.waiting == q
	d.waiting = nil
	switch {
	case err != nil:
		if whole {
			err = errors.Join(err, d.run(q))
		}
		return err
	case !whole:
		r.misses++
		return nil
	case q.equal(r.last):
		r.misses = 0
		return r.launch()
	}
	r.misses++
	r.last, r.next = q, r.last
	return errors.Join(r.forget(), d.run(q))
}

// launch submits the last work as a graph, or call by call where it cannot be one.
func (r *replay) launch() error {
	d := r.d
	if r.graph == nil {
		if err := r.capture(); err != nil {
			r.misses = mostMisses
			return d.run(r.last)
		}
	}
	if err := result(C.tidemark_graph_launch(d.ccontext(), d.cstream(), r.graph)); err != nil {
		return fmt.Errorf("launching a graph of %d calls: %w", len(r.last.list), err)
	}
	r.replayed++
	return nil
}

// capture makes a graph of the last work.
func (r *replay) capture() error {
	d := r.d
	if err := result(C.tidemark_capture(d.ccontext(), d.cstream())); err != nil {
		return fmt.Errorf("beginning to capture: %w", err)
	}
	err := d.run(r.last)
	if ended := result(C.tidemark_captured(d.ccontext(), d.cstream(), &r.graph)); ended != nil {
		r.graph = nil
		err = errors.Join(err, fmt.Errorf("making a graph of %d calls: %w", len(r.last.list), ended))
	}
	if err != nil {
		return errors.Join(err, r.forget())
	}
	return nil
}

func (r *replay) forget() error {
	if r.graph == nil {
		return nil
	}
	g := r.graph
	r.graph = nil
	if r.d.closed {
		return nil
	}
	return result(C.tidemark_graph_destroy(r.d.ccontext(), g))
}

func (r *replay) Close() {
	r.last, r.next, r.misses = &queue{}, &queue{}, 0
	_ = r.forget() // the driver gives a graph back at the latest with its context
}
