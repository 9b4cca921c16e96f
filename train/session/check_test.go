package session_test

import (
	"strings"
	"testing"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// scaled is a model whose one layer, inner, is made of one operation.
type scaled struct {
	inner *layer
}

func (*scaled) Type() string            { return "Scaled" }
func (s *scaled) Members(m *nn.Members) { m.Module("inner", s.inner) }
func (s *scaled) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	return b.Call("inner", s.inner, in...)
}

type layer struct {
	w     *nn.Parameter
	build func(*gorgonia.Node) (*gorgonia.Node, error)
}

func (*layer) Type() string            { return "Layer" }
func (l *layer) Members(m *nn.Members) { m.Parameter("w", l.w) }
func (l *layer) Forward(b *nn.Builder, _ ...*gorgonia.Node) (nn.Output, error) {
	w, err := b.Parameter(l.w)
	if err != nil {
		return nn.Output{}, err
	}
	y, err := l.build(w)
	return nn.Tensor(y), err
}

// A plan that asks a device for a kernel that it lacks is refused before any
// memory is taken, with the operation and the module; backward passes count.
func TestKernelsAreCheckedBeforeARun(t *testing.T) {
	mul := func(x *gorgonia.Node) (*gorgonia.Node, error) { return aten.MulScalar(x, 2) }
	scale := func(x *gorgonia.Node) (*gorgonia.Node, error) { return op.Scale(x, 2) }
	for _, c := range []struct {
		name   string
		build  func(*gorgonia.Node) (*gorgonia.Node, error)
		has    func(string) bool
		refuse string
	}{
		{"portable on a card", scale, kernel.HasCard, ""},
		{"PyTorch's primitive where everything is counted", mul, nil, ""},
		{"PyTorch's primitive on a card", mul, kernel.HasCard, "aten.mul in inner: meta"},
		{"no launcher for backward", func(x *gorgonia.Node) (*gorgonia.Node, error) { return op.ReLU(x) },
			func(name string) bool { return name != "relu.grad" }, "relu.grad in inner: meta"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &scaled{&layer{&nn.Parameter{Shape: []int{4}, Init: nn.Init{Kind: "zeros"}}, c.build}}
			dev := device.NewMeta(alloc.Config{})
			s := session.New(dev, nil, session.Options{})
			if err := s.Materialize(m, device.Float32); err != nil {
				t.Fatal(err)
			}
			b := nn.NewBuilder(m, nn.Options{DType: device.Float32})
			y, err := b.Run()
			if err != nil {
				t.Fatal(err)
			}
			p, err := plan.Compile(b, y.Nodes, plan.Options{Differentiate: y.Nodes})
			if err != nil {
				t.Fatal(err)
			}
			dev.StandFor(c.has)
			before := dev.Allocator().Stats()
			_, err = s.Forward(p)
			if c.refuse == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.refuse) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("error %v, want one line with %q", err, c.refuse)
			}
			if after := dev.Allocator().Stats(); after != before {
				t.Errorf("memory was taken: %+v, before %+v", after, before)
			}
		})
	}
}
