package bench

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/tidemark-lab/tidemark/data"
	"github.com/tidemark-lab/tidemark/nn/models"
)

// machine is a graph on Gorgonia's TapeMachine with one of its solvers.
type machine struct {
	vm     gorgonia.VM
	solver gorgonia.Solver
	model  []gorgonia.ValueGrad
	inputs gorgonia.Nodes
	values [][]tensor.Tensor // by batch
	loss   gorgonia.Value
}

// newMachine differentiates the loss and compiles the graph.
func newMachine(g *gorgonia.ExprGraph, loss *gorgonia.Node, parameters, inputs gorgonia.Nodes, w workload) (*machine, error) {
	m := &machine{inputs: inputs, model: gorgonia.NodesToValueGrads(parameters)}
	gorgonia.Read(loss, &m.loss)
	if _, err := gorgonia.Grad(loss, parameters...); err != nil {
		return nil, fmt.Errorf("differentiating: %w", err)
	}
	switch w.optimizer {
	case "sgd":
		m.solver = gorgonia.NewVanillaSolver(gorgonia.WithLearnRate(w.rate))
	case "adamw-fused":
		m.solver = gorgonia.NewAdamSolver(gorgonia.WithLearnRate(w.rate))
	default:
		return nil, fmt.Errorf("no solver of Gorgonia is the optimizer %s", w.optimizer)
	}
	m.vm = gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(parameters...))
	return m, nil
}

func (m *machine) step(batch int) (float64, error) {
	for i, v := range m.values[batch] {
		if err := gorgonia.Let(m.inputs[i], v); err != nil {
			return 0, err
		}
	}
	if err := m.vm.RunAll(); err != nil {
		return 0, err
	}
	if err := m.solver.Step(m.model); err != nil {
		return 0, err
	}
	loss, ok := m.loss.Data().(float32)
	if !ok {
		return 0, fmt.Errorf("the loss is a %T", m.loss.Data())
	}
	m.vm.Reset()
	return float64(loss), nil
}

func (m *machine) memory() (allocated, reserved int64) { return 0, 0 }

func (m *machine) close() { m.vm.Close() }

// newStockMachine writes a workload's net with stock operations.
func newStockMachine(w workload, batches []*data.Batch) (*machine, error) {
	model, err := models.New(w.config())
	if err != nil {
		return nil, err
	}
	s := newStock(model, w)
	var loss *gorgonia.Node
	var inputs gorgonia.Nodes
	switch model := model.(type) {
	case *models.MLP:
		inputs, loss = s.mlp(model, w.batch)
	case *models.GPT:
		inputs, loss = s.gpt(model.Config, w.batch, w.tokens)
	default:
		return nil, fmt.Errorf("no stock net for a %s", model.Type())
	}
	m, err := newMachine(s.g, loss, s.parameters, inputs, w)
	if err != nil {
		return nil, err
	}
	for _, b := range batches {
		var vs []tensor.Tensor
		for i, ids := range [][]int32{b.Inputs, b.Targets} {
			shape := inputs[i].Shape().Clone()
			var v []float32
			if len(ids) > 0 {
				v = oneHot(ids, shape[1])
			} else {
				v = b.Features
			}
			vs = append(vs, tensor.New(tensor.WithShape(shape...), tensor.WithBacking(v)))
		}
		m.values = append(m.values, vs)
	}
	return m, nil
}

// oneHot is rows that are 1 at an id: the stock form of a look-up.
func oneHot(ids []int32, classes int) []float32 {
	v := make([]float32, len(ids)*classes)
	for i, id := range ids {
		v[i*classes+int(id)] = 1
	}
	return v
}

// input is a matrix that every batch gives anew.
func (s *stock) input(name string, rows, cols int) *gorgonia.Node {
	return gorgonia.NewMatrix(s.g, tensor.Float32, gorgonia.WithShape(rows, cols), gorgonia.WithName(name))
}

func (s *stock) mlp(m *models.MLP, batch int) (inputs gorgonia.Nodes, loss *gorgonia.Node) {
	layers := len(m.Dims) - 1
	x := s.input("batch", batch, m.Dims[0])
	y := s.input("targets", batch, m.Dims[layers])
	h := x
	for i := range layers {
		if i > 0 {
			h = must(gorgonia.Rectify(h))
		}
		h = s.linear(h, fmt.Sprint(2*i), true, 0, 0)
	}
	return gorgonia.Nodes{x, y}, s.crossEntropy(h, y)
}

func (s *stock) gpt(c models.GPTConfig, batch, tokens int) (inputs gorgonia.Nodes, loss *gorgonia.Node) {
	rows := batch * tokens
	x := s.input("batch", rows, c.Vocabulary)
	y := s.input("targets", rows, c.Vocabulary)
	positions := make([]int32, rows)
	for i := range positions {
		positions[i] = int32(i % tokens)
	}
	position := s.matrix("positions", rows, c.Context, oneHot(positions, c.Context))
	causal := make([]float32, batch*c.Heads*tokens*tokens)
	for i := range causal {
		if i%tokens <= i/tokens%tokens {
			causal[i] = 1
		}
	}
	mask := gorgonia.NewTensor(s.g, tensor.Float32, 3, gorgonia.WithName("mask"),
		gorgonia.WithShape(batch*c.Heads, tokens, tokens),
		gorgonia.WithValue(tensor.New(tensor.WithShape(batch*c.Heads, tokens, tokens), tensor.WithBacking(causal))))

	h := must(gorgonia.Add(
		must(gorgonia.Mul(x, s.table("wte.weight"))),
		must(gorgonia.Mul(position, s.table("wpe.weight")))))
	for i := range c.Layers {
		name := fmt.Sprintf("blocks.%d", i)
		a := s.attention(s.layerNorm(h, name+".ln1"), name, batch, tokens, c.Heads, mask)
		h = must(gorgonia.Add(h, a))
		f := s.linear(s.layerNorm(h, name+".ln2"), name+".fc", true, 0, 0)
		h = must(gorgonia.Add(h, s.linear(s.gelu(f), name+".fc2", true, 0, 0)))
	}
	return gorgonia.Nodes{x, y}, s.crossEntropy(s.linear(s.layerNorm(h, "lnf"), "head", false, 0, 0), y)
}
