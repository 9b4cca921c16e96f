package device

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// Meta is a device with addresses and nothing behind them: it counts bytes
// exactly and computes nothing. It costs the same for any size of model.
type Meta struct {
	a   *alloc.Allocator
	has func(kernel string) bool
}

var _ Device = (*Meta)(nil)

// NewMeta makes a meta device.
func NewMeta(config alloc.Config) *Meta {
	return &Meta{a: alloc.New(&alloc.Addresses{}, config)}
}

// NewMetaOn makes a meta device whose segments have the addresses that backing
// gives.
func NewMetaOn(backing alloc.Backing, config alloc.Config) *Meta {
	return &Meta{a: alloc.New(backing, config)}
}

// Info says kind "meta".
func (m *Meta) Info() Info {
	return Info{Kind: KindMeta, Name: "no device: sizes are calculated, nothing is computed"}
}

// Allocator is the device's allocator.
func (m *Meta) Allocator() *alloc.Allocator { return m.a }

// StandFor makes the device one that has only the kernels of another, by name,
// for which it counts.
func (m *Meta) StandFor(has func(kernel string) bool) { m.has = has }

// HasKernel is true for every call, or for those of the device that m stands for.
func (m *Meta) HasKernel(c *Call) bool { return m.has == nil || m.has(c.Kernel) }

// Run computes nothing.
func (m *Meta) Run(*Call) error { return nil }

// Upload stores nothing, but checks the size.
func (m *Meta) Upload(t Tensor, src []byte) error { return checkSize("upload to", t, len(src)) }

// Download fails: there is nothing to read.
func (m *Meta) Download([]byte, Tensor) error {
	return fmt.Errorf("the meta device holds no values; run on cpu or cuda to read them")
}

// Synchronize has nothing to wait for.
func (m *Meta) Synchronize() error { return nil }

// Close gives back nothing.
func (m *Meta) Close() error { return nil }

func checkSize(what string, t Tensor, n int) error {
	if int64(n) != t.Bytes() {
		return fmt.Errorf("%s a tensor %v: %d bytes given, it has %d", what, t.Spec, n, t.Bytes())
	}
	return nil
}
