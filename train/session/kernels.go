package session

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/train/plan"
)

// checkKernels fails where the device lacks a kernel of a plan, of its forward
// or backward pass, and names the operation and its module: before anything
// runs, since half a step is of no use.
func (s *Session) checkKernels(p *plan.Plan) error {
	if s.runnable == p {
		return nil
	}
	var c device.Call
	for i := range p.Steps {
		st := &p.Steps[i]
		d := st.Description
		if d == nil || d.View != nil {
			continue
		}
		c.Kernel, c.Host = d.Kernel, d.Host
		if s.dev.HasKernel(&c) {
			continue
		}
		where := "the model"
		if st.Module != "" {
			where = st.Module
		}
		info := s.dev.Info()
		return fmt.Errorf("%s in %s: %s (%s) has no kernel for it; operations of package nn/op have one on every device",
			d.Kernel, where, info.Kind, info.Name)
	}
	s.runnable = p
	return nil
}
