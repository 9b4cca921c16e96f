package scenarios

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/optim"
)

// stateBytes is an optimizer's state for the parameters of a training, by the
// table of optimizers, for 4-byte numbers; step counters are not in it.
func (r *trained) stateBytes(k optim.Kind) (n int64) {
	for _, shape := range r.shapes {
		n += elementBytes * k.StateElements(shape)
	}
	return n
}

// counterBytes is what an optimizer keeps on the device beside its state: a count
// of steps for each tensor, as PyTorch's fused Adam does.
func (r *trained) counterBytes(v optim.Variant) int64 { return v.CounterBytes * int64(len(r.shapes)) }

// temporaries checks what an optimizer's step needs for a moment.
func (c checker) temporaries(r *trained, t optim.Temporaries, observed int64) {
	all, largest := elementBytes*r.parameters, elementBytes*r.largest
	least, most := t.Least.Bytes(all, largest), t.Most.Bytes(all, largest)
	const name, source = "temporaries", "D1.7"
	switch {
	case t.Least == t.Most:
		c.bytes(name, source, t.Sentence, most, observed)
	case t.Least == optim.Extent{}:
		c.atMost(name, source, t.Sentence, most, observed)
	default:
		c.that(name, source, t.Sentence,
			fmt.Sprintf("from %g to %g times the largest tensor, %s to %s bytes", t.Least.Largest, t.Most.Largest, show.Grouped(least), show.Grouped(most)),
			show.Grouped(observed)+" bytes", observed >= least && observed <= most)
	}
}
