package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"weak"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/train/plan"
)

// check fails where the session or its device lacks what a plan needs, of its
// forward or backward pass: before anything runs, since half a step is of no
// use. A plan that was found right is not looked at again until parameters
// change.
func (s *Session) check(p *plan.Plan) error {
	key := weak.Make(p) // a plan that nobody has any more is let go
	if _, ok := s.checked[key]; ok {
		return nil
	}
	for _, f := range []func(*plan.Plan) error{s.checkKernels, s.checkParameters, s.checkGradients} {
		if err := f(p); err != nil {
			return err
		}
	}
	s.checked[key] = struct{}{}
	return nil
}

// checkKernels names the operation and the module for which the device has no
// kernel.
func (s *Session) checkKernels(p *plan.Plan) error {
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
	return nil
}

// checkParameters names the parameter that the session does not have, or has
// in another form than the plan was compiled for.
func (s *Session) checkParameters(p *plan.Plan) error {
	for _, pp := range p.Parameters {
		q, want := s.byPointer[pp.Model], pp.Spec
		switch {
		case q == nil:
			return fmt.Errorf("parameter %s: the session has none, the plan takes %v; materialize the model that the plan was compiled for",
				pp.Name, want)
		case q.Value.Spec.Equal(want):
		case q.Value.DType != want.DType:
			return fmt.Errorf("parameter %s: the session has %v, the plan takes %v; materialize the model in the element type that it is built in",
				pp.Name, q.Value.Spec, want)
		default:
			return fmt.Errorf("parameter %s: the session has %v, the plan takes %v; its shape has changed since", pp.Name, q.Value.Spec, want)
		}
	}
	return nil
}

// checkGradients names the parameter whose gradient, as the plan computes it,
// is not like the parameter.
func (s *Session) checkGradients(p *plan.Plan) error {
	for i := range p.Steps {
		st := &p.Steps[i]
		if st.Deposit < 0 {
			continue
		}
		pp := p.Parameters[st.Deposit]
		got, want := p.Values[st.In[0]].Spec, s.byPointer[pp.Model].Value.Spec
		if !got.Equal(want) {
			return fmt.Errorf("parameter %s is %v, its gradient %v; an operation that reads it differentiates to something else", pp.Name, want, got)
		}
	}
	return nil
}

// checkValues compares what a caller gives for a plan's values with what the
// plan takes; what names the one at a position, and open its dimension whose
// size may be another, -1 for none.
func (s *Session) checkValues(p *plan.Plan, want []int, got []*Value, what func(int) string, open func(int) int) error {
	if len(got) != len(want) {
		list := make([]string, len(want))
		for i, v := range want {
			list[i] = fmt.Sprintf("%s %v", what(i), p.Values[v].Spec)
		}
		return fmt.Errorf("%d values given, the plan takes %d: %s", len(got), len(want), strings.Join(list, ", "))
	}
	for i, v := range want {
		if err := s.owns(got[i]); err != nil {
			return fmt.Errorf("%s: %w", what(i), err)
		}
		spec := p.Values[v].Spec
		if d := open(i); d >= 0 && d < len(got[i].Shape) && len(got[i].Shape) == len(spec.Shape) {
			spec.Shape = slices.Clone(spec.Shape)
			spec.Shape[d] = got[i].Shape[d]
		}
		if !got[i].Spec.Equal(spec) {
			return fmt.Errorf("%s is %v, the plan takes %v", what(i), got[i].Spec, spec)
		}
	}
	return nil
}

// owns fails for a value that the session cannot read: none, one that was
// released, or another session's.
func (s *Session) owns(v *Value) error {
	switch {
	case v == nil:
		return errors.New("there is no value")
	case v.s != s:
		return errors.New("the value is another session's, whose memory this one does not read")
	case v.m == nil:
		return errors.New("the value was released")
	}
	return nil
}
