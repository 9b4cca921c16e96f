package scenarios

import (
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/train"
)

// outputElements is what forward hooks on every module count: the elements of
// all outputs. A record is not counted, as a hook that looks for tensors does
// not look into one; the modules inside have returned what it holds.
func outputElements(p *train.Plan) int64 {
	var n int64
	for _, call := range p.Calls() {
		if call.Output.Form != nn.FormRecord {
			n += call.Elements()
		}
	}
	return n
}
