//go:build gpu

package cuda

// #include "driver.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/tidemark-lab/tidemark/device"
)

// stagingBytes is the size of each pinned buffer.
const stagingBytes = 8 << 20

// transfers are two pinned buffers used in turn: while the card copies from
// one, the host fills the other.
type transfers struct {
	buffers [2]unsafe.Pointer
	done    [2]cu.Event
	made    [2]bool
	next    int
}

// buffer returns the next buffer when no copy uses it any more.
func (d *Device) buffer() (int, error) {
	t := &d.transfers
	i := t.next
	t.next = 1 - i
	if t.made[i] {
		return i, d.do(t.done[i].Synchronize)
	}
	if err := result(C.tidemark_pinned(d.ccontext(), &t.buffers[i], stagingBytes)); err != nil {
		return 0, fmt.Errorf("allocating pinned memory: %w", err)
	}
	err := d.do(func() (err error) {
		t.done[i], err = cu.MakeEvent(cu.DisableTiming)
		return err
	})
	if err != nil {
		return 0, err
	}
	t.made[i] = true
	return i, d.do(func() error { return t.done[i].Record(d.stream) })
}

func (t *transfers) close() error {
	var errs []error
	for i := range t.made {
		if t.buffers[i] != nil {
			errs = append(errs, cu.MemFreeHost(t.buffers[i]))
		}
		if t.made[i] {
			errs = append(errs, cu.DestroyEvent(&t.done[i]))
		}
	}
	*t = transfers{}
	return errors.Join(errs...)
}

// Upload copies src to t after the work queued so far. It returns when src is
// read; the card may still be copying from pinned memory.
func (d *Device) Upload(t device.Tensor, src []byte) error {
	if err := errors.Join(checkSize(t, len(src)), d.submit()); err != nil {
		return err
	}
	for at := 0; at < len(src); at += stagingBytes {
		part := src[at:min(at+stagingBytes, len(src))]
		i, err := d.buffer()
		if err != nil {
			return fmt.Errorf("upload of %v: %w", t.Spec, err)
		}
		copy(unsafe.Slice((*byte)(d.transfers.buffers[i]), stagingBytes), part)
		err = result(C.tidemark_upload(d.ccontext(), d.cstream(), C.uint64_t(t.Addr+uint64(at)),
			d.transfers.buffers[i], C.size_t(len(part))))
		if err == nil {
			err = d.do(func() error { return d.transfers.done[i].Record(d.stream) })
		}
		if err != nil {
			return fmt.Errorf("upload of %v: %w", t.Spec, err)
		}
	}
	return nil
}

// Download waits for earlier work and copies t to dst.
func (d *Device) Download(dst []byte, t device.Tensor) error {
	if err := errors.Join(checkSize(t, len(dst)), d.submit()); err != nil {
		return err
	}
	// One part is copied out of pinned memory while the next is on its way.
	type piece struct {
		buffer, at, n int
	}
	var waiting *piece
	finish := func() error {
		if waiting == nil {
			return nil
		}
		p := *waiting
		waiting = nil
		if err := d.do(d.transfers.done[p.buffer].Synchronize); err != nil {
			return err
		}
		copy(dst[p.at:p.at+p.n], unsafe.Slice((*byte)(d.transfers.buffers[p.buffer]), stagingBytes))
		return nil
	}
	for at := 0; at < len(dst); at += stagingBytes {
		n := min(stagingBytes, len(dst)-at)
		i, err := d.buffer()
		if err == nil {
			err = result(C.tidemark_download(d.ccontext(), d.cstream(), d.transfers.buffers[i],
				C.uint64_t(t.Addr+uint64(at)), C.size_t(n)))
		}
		if err == nil {
			err = d.do(func() error { return d.transfers.done[i].Record(d.stream) })
		}
		if err == nil {
			err = finish()
		}
		if err != nil {
			return fmt.Errorf("download of %v: %w", t.Spec, err)
		}
		waiting = &piece{i, at, n}
	}
	if err := finish(); err != nil {
		return fmt.Errorf("download of %v: %w", t.Spec, err)
	}
	return nil
}

func checkSize(t device.Tensor, n int) error {
	if int64(n) != t.Bytes() {
		return fmt.Errorf("%d bytes given for %v, which has %d", n, t.Spec, t.Bytes())
	}
	return nil
}
