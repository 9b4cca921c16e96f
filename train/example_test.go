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

// Two steps of a model of one's own.
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
	loss, err := op.Mean(y.One())
	check(err)
	p, err := plan.Compile(b, []*gorgonia.Node{loss}, plan.Options{Differentiate: []*gorgonia.Node{loss}})
	check(err)
	optimizer, err := optim.New("adamw", optim.Options{})
	check(err)

	batch := make([]float32, spec.Elements())
	for range 2 {
		_, err := s.Train(p, optimizer, 1e-3, batch) // the loss: NaN on meta
		check(err)
	}
	fmt.Println("at the peak:", rec.Peak().ByCategory)
	// Output:
	// "w" Linear 320
	// "" Gate 320
	// at the peak: input 98.0 KiB (38 %), optimizer state 63.0 KiB (25 %), parameter 31.5 KiB (12 %), gradient 31.5 KiB (12 %), optimizer temporary 31.5 KiB (12 %), activation 512 B (<1 %)
}
