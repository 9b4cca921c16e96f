package optim

import (
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	cards "github.com/tidemark-lab/tidemark/device/kernel"
)

// listening is a meta device that notes the kernels it is asked for.
type listening struct {
	*device.Meta
	heard map[string]bool
}

func (d listening) Run(c *device.Call) error {
	d.heard[c.Kernel] = true
	return d.Meta.Run(c)
}

// Every optimizer, and the clipping of gradients, runs on kernels that cards have.
func TestOptimizersHaveKernelsOnCards(t *testing.T) {
	dev := listening{device.NewMeta(alloc.Config{}), map[string]bool{}}
	for _, name := range Names() {
		b := newBench(t, dev)
		b.add("w", device.Float32, 6, 5)
		b.add("b", device.Float32, 5)
		o, err := New(name, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := o.Step(b, b.params, 1e-3); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	b := newBench(t, dev)
	b.add("w", device.Float32, 6, 5)
	if _, err := ClipGradNorm(b, b.params, 1); err != nil {
		t.Fatal(err)
	}
	if len(dev.heard) < 15 {
		t.Errorf("only %d kernels were asked for: %v", len(dev.heard), dev.heard)
	}
	for name := range dev.heard {
		if !cards.HasCard(name) {
			t.Errorf("no card has %s: add a launcher to device/cuda and its name to device/kernel", name)
		}
	}
}
