package optim

import (
	"fmt"
	"math"
	"slices"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
)

// Parameter is a weight and its gradient, which have one shape and element
// type. Name identifies it from step to step, such as "blocks.0.mlp.weight".
type Parameter struct {
	Name            string
	Value, Gradient device.Tensor
}

// Buffer is memory that an optimizer holds.
type Buffer interface {
	// Tensor is the memory.
	Tensor() device.Tensor
	// Release gives the memory back. It is called once.
	Release()
}

// Memory is the device that the parameters are on, as an optimizer uses it.
type Memory interface {
	// Allocate takes memory for a tensor. Its content is undefined.
	Allocate(spec device.Spec, label instrument.Label) (Buffer, error)
	// Run queues a call. When it returns the caller may change the Call.
	Run(c *device.Call) error
	// Download waits for earlier calls and copies t, of len(dst) bytes.
	Download(dst []byte, t device.Tensor) error
	// Computes is false where calls compute nothing and values do not exist,
	// as on meta. Download is then not called.
	Computes() bool
}

// Optimizer updates parameters. It is used by one goroutine at a time.
type Optimizer interface {
	// Name is the optimizer's name with its implementation, as New takes it.
	Name() string
	// Options are the options with all defaults filled in.
	Options() Options
	// Step updates the parameters' values. Parameters are those that have a
	// gradient in this step, in the model's order; a parameter that is new has
	// its state allocated. Gradients are left as they are, except by Nesterov
	// momentum without weight decay as "foreach", which, as in PyTorch, adds
	// the momentum to the gradient in place. After an error, for example out
	// of memory, the step may be half done.
	Step(m Memory, params []Parameter, lr float64) error
	// State lists what is carried to the next step, by parameter in the order
	// in which state was made.
	State() []ParameterState
	// Restore allocates the state of the parameters in steps, which gives the
	// steps done for each by name, and has load fill each tensor. It replaces
	// what state there was. When it fails no state remains.
	Restore(m Memory, params []Parameter, steps map[string]int64, load Loader) error
	// Release frees the state, as if no step had been done.
	Release()
}

// Loader fills one tensor of a parameter's state.
type Loader func(parameter, tensor string, t device.Tensor) error

// ParameterState is the state that belongs to one parameter.
type ParameterState struct {
	Parameter string
	Step      int64 // steps done
	Tensors   []NamedTensor
}

// NamedTensor is a tensor of a parameter's state under PyTorch's name for it,
// such as "exp_avg".
type NamedTensor struct {
	Name   string
	Tensor device.Tensor
}

// check finds errors in Step's arguments before anything is changed.
func check(params []Parameter, lr float64) error {
	if math.IsNaN(lr) || math.IsInf(lr, 0) || lr < 0 {
		return fmt.Errorf("learning rate %v: it must be a finite number, 0 or more", lr)
	}
	for i := range params {
		p := &params[i]
		if p.Value.DType != p.Gradient.DType || !slices.Equal(p.Value.Shape, p.Gradient.Shape) {
			return fmt.Errorf("%s is %v, its gradient %v: they must be alike", p.Name, p.Value.Spec, p.Gradient.Spec)
		}
		if p.Value.DType != params[0].Value.DType {
			return fmt.Errorf("%s is %v, %s is %v: one optimizer updates parameters of one element type",
				p.Name, p.Value.DType, params[0].Name, params[0].Value.DType)
		}
	}
	return nil
}
