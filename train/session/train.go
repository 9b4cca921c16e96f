package session

import (
	"errors"
	"fmt"
	"math"

	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train/plan"
)

// Train does one step of training on a plan whose first output is the loss that
// it differentiates, a scalar: forward, backward, the optimizer's update at a
// learning rate, and the gradients dropped. With a recorder it is a step of
// four phases, "forward", "backward", "optim" and "zero". data are the plan's
// inputs, as Inputs takes them; their memory goes when the step is done.
//
// The loss is that before the update. Where nothing is computed it is NaN.
//
// A step that fails before the update has not begun: the gradients are dropped,
// and the random draws come again.
func (s *Session) Train(p *plan.Plan, o optim.Optimizer, lr float64, data ...any) (loss float64, err error) {
	s.calledFrom()
	if err := s.checkLoss(p); err != nil {
		return math.NaN(), fmt.Errorf("train: %w", err)
	}
	if s.recorder != nil {
		s.recorder.Step(s.steps)
		defer s.recorder.EndStep()
	}
	inputs, err := s.inputs(p, data)
	if err != nil {
		return math.NaN(), fmt.Errorf("train: %w", err)
	}
	defer inputs.Release()
	passes := s.passes
	r, err := s.gradients(p, inputs)
	defer r.Release()
	if err != nil {
		s.ZeroGrad()
		s.passes = passes
		return math.NaN(), err
	}
	if err := s.Measure("optim", func() error { return o.Step(s.OptimizerMemory(), s.WithGradient(), lr) }); err != nil {
		return math.NaN(), err
	}
	if err := s.Measure("zero", func() error { s.ZeroGrad(); return nil }); err != nil {
		return math.NaN(), err
	}
	s.steps++
	if !s.dev.Info().Kind.Computes {
		return math.NaN(), nil
	}
	loss, err = s.Scalar(r.Output(0))
	if err == nil && s.recorder != nil {
		s.recorder.Loss(loss)
	}
	return loss, err
}

// gradients runs a plan forward and backward. The result is the caller's to
// release, on error too.
func (s *Session) gradients(p *plan.Plan, inputs Inputs) (r *Result, err error) {
	err = s.Measure("forward", func() error {
		r, err = s.forward(p, inputs)
		return err
	})
	if err != nil {
		return r, err
	}
	return r, s.Measure("backward", func() error {
		seed, err := s.SeedGradient(r, 1)
		if err != nil {
			return err
		}
		defer seed.Release()
		return s.backward(r, []*Value{seed})
	})
}

// checkLoss fails for a plan that does not differentiate its first output, a
// scalar.
func (s *Session) checkLoss(p *plan.Plan) error {
	if len(p.SeedValues) == 0 {
		return errors.New("the plan differentiates nothing; name the loss in plan.Options.Differentiate")
	}
	seed, out := p.Values[p.SeedValues[0]].Spec, p.Values[p.OutputValues[0]].Spec
	if len(p.SeedValues) > 1 || len(seed.Shape) > 0 || !seed.Equal(out) {
		return fmt.Errorf("the plan's first output is %v, and it differentiates %d outputs, the first of them %v; that must be one loss, a scalar",
			out, len(p.SeedValues), seed)
	}
	return nil
}

// Inputs are the values of a plan's inputs, in its order.
type Inputs []*Value

// Release releases all of them.
func (in Inputs) Release() {
	for _, v := range in {
		v.Release()
	}
}

// Inputs allocates the inputs of a plan, of the shapes and element types that
// it was built with, and copies data to them, in the order of the plan's
// Inputs: []float32 or []float64 for floating-point inputs, []int32 or []int64
// for integers, converted where the plan's element type is another, or the
// elements as they are in memory, []byte. What is nil is not copied, as for
// devices that compute nothing; without any data nothing is.
func (s *Session) Inputs(p *plan.Plan, data ...any) (Inputs, error) {
	s.calledFrom()
	return s.inputs(p, data)
}

func (s *Session) inputs(p *plan.Plan, data []any) (Inputs, error) {
	if len(data) > 0 && len(data) != len(p.InputValues) {
		return nil, fmt.Errorf("inputs: %d given, the plan takes %d: %v", len(data), len(p.InputValues), p.InputNames)
	}
	var in Inputs
	for i, name := range p.InputNames {
		spec := p.Values[p.InputValues[i]].Spec
		var src []byte
		if len(data) > 0 {
			var err error
			if s.staging, err = appendElements(s.staging[:0], spec, data[i]); err != nil {
				in.Release()
				return nil, fmt.Errorf("input %s: %w", name, err)
			}
			src = s.staging
		}
		v, err := s.input(name, spec, src)
		if err != nil {
			in.Release()
			return nil, err
		}
		in = append(in, v)
	}
	return in, nil
}
