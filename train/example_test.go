package train_test

import (
	"fmt"
	"log"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// Gate is a layer of one's own: the sigmoid of a Linear.
type Gate struct{ W *nn.Linear }

func (*Gate) Type() string            { return "Gate" }
func (g *Gate) Members(m *nn.Members) { m.Module("w", g.W) }

func (g *Gate) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	h, err := b.Call("w", g.W, in[0])
	if err != nil {
		return nn.Output{}, err
	}
	y, err := op.Sigmoid(h.One())
	return nn.Tensor(y), err
}

// A step of a model of one's own, phase by phase.
func ExampleSession() {
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	model := &Gate{nn.NewLinear(784, 10, true)}
	b := nn.NewBuilder(model, nn.Options{})
	b.OnForward(func(c nn.Call) { fmt.Printf("%q %s %d\n", c.Path, c.Module.Type(), c.Elements()) })

	rec := instrument.New(instrument.Options{})
	dev := device.NewCPU(alloc.Config{}) // or device.NewMeta
	defer dev.Close()
	rec.Attach(dev.Allocator())
	s := session.New(dev, rec, session.Options{Seed: 1})
	defer s.Close()
	check(s.Materialize(model, device.Float32)) // parameters

	spec := device.Spec{DType: device.Float32, Shape: []int{32, 784}}
	y, err := b.Run(b.Input("x", spec))
	check(err)
	plan, err := plan.Compile(b, y.Nodes, plan.Options{Differentiate: y.Nodes})
	check(err)
	optimizer, err := optim.New("adamw", optim.Options{})
	check(err)

	batch, err := s.Input("x", spec, make([]byte, spec.Bytes()))
	check(err)
	result, err := s.Forward(plan, batch) // holds its output and what it saved
	check(err)
	seed, err := s.Allocate(result.Output(0).Spec, instrument.Label{Category: instrument.Gradient, Op: "seed"})
	check(err)
	check(s.FillValue(seed, 1))     // the gradient of the outputs' sum
	check(s.Backward(result, seed)) // leaves the parameters' gradients
	check(s.Step(optimizer, 1e-3))  // makes the optimizer's state
	s.ZeroGrad()                    // drops the gradients
	result.Release()
	fmt.Println(rec.Peak().ByCategory[instrument.OptimizerState], "bytes of optimizer state")
	// Output:
	// "w" Linear 320
	// "" Gate 320
	// 64512 bytes of optimizer state
}
