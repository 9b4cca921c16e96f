package conformance

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// model is a net of one case: its operands are the parameters and inputs, and
// what is done with them is one block.
type model struct {
	operands []Operand
	params   []*nn.Parameter // by operand; nil for an input
	block    block
}

func (*model) Type() string { return "Case" }

func (m *model) Members(ms *nn.Members) {
	for i, p := range m.params {
		ms.Parameter(m.operands[i].Name, p)
	}
	ms.Module("block", m.block)
}

func (m *model) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	nodes := make([]*gorgonia.Node, len(m.operands))
	for i, p := range m.params {
		if p == nil {
			nodes[i], in = in[0], in[1:]
			continue
		}
		n, err := b.Parameter(p)
		if err != nil {
			return nn.Output{}, err
		}
		nodes[i] = n
	}
	return b.CallBlock("block", m.block, nodes...)
}

// block is a composition as a module.
type block struct {
	operands []Operand
	mixed    bool // operands that are not Wide are rounded to bfloat16
	build    Build
	compose  composition
}

func (block) Type() string        { return "Block" }
func (block) Members(*nn.Members) {}
func (m block) Forward(_ *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	if m.mixed {
		in = slices.Clone(in)
		for i, o := range m.operands {
			if o.Ints == nil && !o.Wide {
				var err error
				if in[i], err = op.ToBFloat16(in[i]); err != nil {
					return nn.Output{}, err
				}
			}
		}
	}
	y, err := m.compose.build(m.build, in)
	if err != nil {
		return nn.Output{}, err
	}
	return nn.Tensor(y), nil
}

// program is a compiled model.
type program struct {
	model *model
	plan  *plan.Plan
	dtype device.DType // of the operands and their gradients
	out   device.Spec
}

// compile plans a composition of an operation on operands of an element type:
// with bfloat16, on operands of float32 that are rounded first, unless they are
// to stay as they are.
func compile(operands []Operand, build Build, compose composition, dt device.DType, checkpointing bool) (*program, error) {
	mixed := dt == device.BFloat16
	if mixed {
		dt = device.Float32
	}
	m := &model{operands: operands, block: block{operands, mixed, build, compose}}
	for _, o := range operands {
		var p *nn.Parameter
		if o.Ints == nil {
			p = &nn.Parameter{Shape: o.Shape, Init: nn.Init{Kind: "zeros"}}
		}
		m.params = append(m.params, p)
	}
	b := nn.NewBuilder(m, nn.Options{DType: dt, GradientCheckpointing: checkpointing, Training: true})
	var inputs []*gorgonia.Node
	for _, o := range operands {
		if o.Ints != nil {
			inputs = append(inputs, b.Input(o.Name, device.Spec{DType: device.Int32, Shape: o.Shape}))
		}
	}
	y, err := b.Run(inputs...)
	if err != nil {
		return nil, err
	}
	p := &program{model: m, dtype: dt}
	if p.out, err = op.SpecOf(y.One()); err != nil {
		return nil, err
	}
	p.plan, err = plan.Compile(b, y.Nodes, plan.Options{Differentiate: y.Nodes})
	return p, err
}

// run is a program on a device with the operands' values there.
type run struct {
	p      *program
	s      *session.Session
	inputs []*session.Value
	before int64 // bytes allocated on the device when the run began
}

// seed is that of all sessions here, so that random draws repeat.
const seed = 20240229

// start puts values on a device. On meta they are only counted.
func (p *program) start(dev device.Device, vs []values) (*run, error) {
	r := &run{p: p, s: session.New(dev, nil, session.Options{Seed: seed}),
		before: dev.Allocator().Stats().Allocated.Current}
	if err := r.s.Materialize(p.model, p.dtype); err != nil {
		return nil, err
	}
	for i, o := range p.model.operands {
		if q := p.model.params[i]; q != nil {
			if err := dev.Upload(r.s.Parameter(q).Value, encode(p.dtype, vs[i].floats)); err != nil {
				return nil, fmt.Errorf("operand %s: %w", o.Name, err)
			}
			continue
		}
		v, err := r.s.Input(o.Name, device.Spec{DType: device.Int32, Shape: o.Shape}, nil)
		if err != nil {
			return nil, err
		}
		r.inputs = append(r.inputs, v)
	}
	return r, r.give(vs)
}

// give replaces the inputs' values.
func (r *run) give(vs []values) error {
	inputs := r.inputs
	for i, q := range r.p.model.params {
		if q != nil {
			continue
		}
		b := make([]byte, 0, 4*len(vs[i].ints))
		for _, n := range vs[i].ints {
			b = binary.LittleEndian.AppendUint32(b, uint32(n))
		}
		if err := inputs[0].Upload(b); err != nil {
			return fmt.Errorf("operand %s: %w", r.p.model.operands[i].Name, err)
		}
		inputs = inputs[1:]
	}
	return nil
}

// step runs forward and, from dy, backward; gradients add to those there. It
// returns the output's bytes, nil on meta.
func (r *run) step(dy []float64) ([]byte, error) {
	res, err := r.s.Forward(r.p.plan, r.inputs...)
	if err != nil {
		return nil, err
	}
	defer res.Release()
	out, err := r.read(res.Output(0))
	if err != nil || dy == nil {
		return out, err
	}
	g, err := r.s.Allocate(r.p.out, instrument.Label{Category: instrument.Temporary})
	if err != nil {
		return nil, err
	}
	defer g.Release()
	if err := g.Upload(encode(r.p.out.DType, dy)); err != nil {
		return nil, err
	}
	return out, r.s.Backward(res, g)
}

// gradients are the parameters' gradients by operand, nil for inputs and on
// meta.
func (r *run) gradients() ([][]byte, error) {
	gs := make([][]byte, len(r.p.model.params))
	for i, q := range r.p.model.params {
		if q == nil {
			continue
		}
		g, ok := r.s.Parameter(q).Gradient()
		if !ok {
			return nil, fmt.Errorf("%s has no gradient", r.p.model.operands[i].Name)
		}
		var err error
		if gs[i], err = r.read(g); err != nil {
			return nil, err
		}
	}
	return gs, nil
}

func (r *run) read(t device.Tensor) ([]byte, error) {
	if _, ok := r.s.Device().(*device.Meta); ok {
		return nil, nil
	}
	b := make([]byte, t.Bytes())
	return b, r.s.Device().Download(b, t)
}

// close gives back all memory and checks that nothing is left.
func (r *run) close() error {
	for _, v := range r.inputs {
		v.Release()
	}
	r.s.Close()
	if n := r.s.Device().Allocator().Stats().Allocated.Current - r.before; n != 0 {
		return fmt.Errorf("%d bytes are still allocated", n)
	}
	return nil
}

// outcome is what one step leaves.
type outcome struct {
	out   []byte
	grads [][]byte
}

// execute runs steps of forward and backward on a device. dy nil runs forward
// only.
func (p *program) execute(dev device.Device, vs []values, dy []float64, steps int) (o outcome, err error) {
	r, err := p.start(dev, vs)
	if err != nil {
		return o, err
	}
	for range steps {
		if o.out, err = r.step(dy); err != nil {
			return o, err
		}
	}
	if dy != nil {
		if o.grads, err = r.gradients(); err != nil {
			return o, err
		}
	}
	return o, r.close()
}

// onCPU executes one step on a cpu device of its own.
func (p *program) onCPU(vs []values, dy []float64) (outcome, error) {
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	return p.execute(dev, vs, dy, 1)
}

// event is what devices must agree on of an allocator's event.
type event struct {
	Action                    alloc.Action
	Size, Allocated, Reserved int64
}

// trace lists the allocator's events of f.
func trace(dev device.Device, f func() error) ([]event, error) {
	var es []event
	done := false // observers stay for good
	dev.Allocator().Observe(func(e *alloc.Event) {
		if !done {
			es = append(es, event{e.Action, e.Size, e.AllocatedBytes, e.ReservedBytes})
		}
	})
	err := f()
	done = true
	return es, err
}

// encode makes bytes of numbers.
func encode(dt device.DType, x []float64) []byte {
	b := make([]byte, 0, int64(len(x))*dt.Size())
	for _, v := range x {
		switch dt {
		case device.Float64:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		case device.BFloat16:
			b = binary.LittleEndian.AppendUint16(b, uint16(device.RoundToBFloat(float32(v))))
		default:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
		}
	}
	return b
}

// decode is the inverse of encode.
func decode(dt device.DType, b []byte) []float64 {
	x := make([]float64, int64(len(b))/dt.Size())
	for i := range x {
		switch dt {
		case device.Float64:
			x[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		case device.BFloat16:
			x[i] = float64(device.BFloat(binary.LittleEndian.Uint16(b[2*i:])).Float32())
		default:
			x[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
		}
	}
	return x
}
