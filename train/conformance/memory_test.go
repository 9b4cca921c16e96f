package conformance

import (
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
)

// TestInPlace counts the blocks that a chain ¾·f(1¼·in) takes: results that
// can take an operand's place do.
func TestInPlace(t *testing.T) {
	for _, want := range []struct {
		name              string
		forward, backward int
	}{
		// Forward: the scaled operands, and one result more where f's
		// gradient reads an operand or the result. Backward: the scaled
		// gradient of the result, whose place those of the operands take, and
		// the parameters' gradients.
		{"relu", 2, 2},
		{"gelu_tanh", 2, 2},
		{"gelu_erf", 2, 2},
		{"silu", 2, 2},
		{"tanh", 2, 2},
		{"sigmoid", 2, 2},
		{"softcap", 2, 2},
		{"softmax", 2, 2},
		{"dropout", 1, 2},
		{"scale", 1, 2},
		// The gradient of the gate takes the other operand's place.
		{"swiglu", 3, 3},
		{"geglu", 3, 3},
		// Mean and reciprocal deviation beside; the gradients of weight and
		// bias are made before they are scaled.
		{"layernorm", 6, 6},
		{"rmsnorm", 4, 4},
		{"rmsnorm with an offset", 4, 4},
		// One of two gradients, as both need both operands.
		{"mse", 3, 4},
	} {
		for _, c := range Cases() {
			if c.Name != want.name {
				continue
			}
			d := c.draw(t, random(c.Name+" in place"), 1)
			p := mustCompile(t, d, compositions[1], device.Float64, false)
			dev := device.NewMeta(alloc.Config{})
			blocks := 0
			dev.Allocator().Observe(func(e *alloc.Event) {
				if e.Action == alloc.Alloc {
					blocks++
				}
			})
			r, err := p.start(dev, d.vs)
			if err != nil {
				t.Fatal(err)
			}
			blocks = 0
			if _, err := r.step(nil); err != nil {
				t.Fatal(err)
			}
			forward := blocks
			blocks = 0
			if _, err := r.step(d.dy); err != nil {
				t.Fatal(err)
			}
			backward := blocks - forward - 1 // step's own gradient of the result
			if forward != want.forward || backward != want.backward {
				t.Errorf("%s takes %d blocks forward and %d backward, want %d and %d", c.Name, forward, backward, want.forward, want.backward)
			}
		}
	}
}
