package harness

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/optim"
)

// ElementBytes is the size of a float32.
const ElementBytes = 4

// StateBytes is an optimizer's state for the parameters of a training, by the
// table of optimizers, for 4-byte numbers; step counters are not in it.
func (r *Trained) StateBytes(k optim.Kind) (n int64) {
	for _, shape := range r.shapes {
		n += ElementBytes * k.StateElements(shape)
	}
	return n
}

// CounterBytes is what an optimizer keeps on the device beside its state: a count
// of steps for each tensor, as PyTorch's fused Adam does.
func (r *Trained) CounterBytes(v optim.Variant) int64 { return v.CounterBytes * int64(len(r.shapes)) }

// Temporaries checks what an optimizer's step needs for a moment.
func (c Checker) Temporaries(r *Trained, t optim.Temporaries, observed int64) {
	all, largest := ElementBytes*r.Parameters, ElementBytes*r.Largest
	least, most := t.Least.Bytes(all, largest), t.Most.Bytes(all, largest)
	const name, source = "temporaries", "D1.7"
	switch {
	case t.Least == t.Most:
		c.Bytes(name, source, t.Sentence, most, observed)
	case t.Least == optim.Extent{}:
		c.AtMost(name, source, t.Sentence, most, observed)
	default:
		c.That(name, source, t.Sentence,
			fmt.Sprintf("from %g to %g times the largest tensor, %s to %s bytes", t.Least.Largest, t.Most.Largest, show.Grouped(least), show.Grouped(most)),
			show.Grouped(observed)+" bytes", observed >= least && observed <= most)
	}
}
