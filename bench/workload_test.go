package bench

import (
	"fmt"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/tidemark-lab/tidemark/data"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train"
)

// workload is a training step to measure. Its unit is a token, or a row of a
// dense net.
type workload struct {
	name      string
	model     string // a config's JSON
	batch     int
	tokens    int // 0 for a dense net
	optimizer string
	rate      float64
	// gain makes the initial weights larger than the model's own; 0 is 1.
	gain float64
}

const (
	dense       = `{"model_type":"mlp","dims":[784,512,512,10]}`
	transformer = `{"model_type":"gpt","vocab_size":65,"n_ctx":64,"n_layer":4,"n_embd":128,"n_head":4}`
	gptChar     = `{"model_type":"gpt","vocab_size":65,"n_ctx":256,"n_layer":6,"n_embd":384,"n_head":6}`
)

var workloads = []workload{
	{"mlp-b64/sgd", dense, 64, 0, "sgd", 0.05, 0},
	{"mlp-b256/sgd", dense, 256, 0, "sgd", 0.05, 0},
	{"mlp-b256/adam", dense, 256, 0, "adamw-fused", 1e-3, 0},
	{"gpt-b8/sgd", transformer, 8, 64, "sgd", 0.05, 0},
	{"gpt-b8/adam", transformer, 8, 64, "adamw-fused", 1e-3, 0},
	{"gpt-char-b4/adam", gptChar, 4, 256, "adamw-fused", 1e-3, 0},
}

func (w workload) config() models.Config {
	c, err := models.ParseConfig([]byte(w.model))
	if err != nil {
		panic(err)
	}
	return c
}

func (w workload) units() int { return w.batch * max(w.tokens, 1) }

func (w workload) unit() string {
	if w.tokens > 0 {
		return "tokens"
	}
	return "rows"
}

func (w workload) settings() train.Settings {
	noDecay := 0.0
	return train.Settings{Model: w.config(), Loss: train.CrossEntropy, Steps: 1 << 20, Batch: w.batch, Accumulate: 1,
		Tokens: w.tokens, Optimizer: w.optimizer, OptimizerOptions: optim.Options{WeightDecay: &noDecay},
		Schedule: optim.Schedule{Kind: optim.Constant, LR: w.rate}, Seed: 1, DType: "float32"}
}

// batches are the first n batches of generated data.
func (w workload) batches(n int) ([]*data.Batch, error) {
	var src data.Source
	var err error
	if w.tokens > 0 {
		_, vocabulary, _, _ := models.Sizes(w.config())
		src, err = data.RandomTokens(vocabulary, w.batch, w.tokens, 1)
	} else {
		src, err = data.Digits(data.DigitsOptions{Seed: 1, Batch: w.batch})
	}
	if err != nil {
		return nil, err
	}
	var bs []*data.Batch
	for i := range n {
		b := new(data.Batch)
		if err := src.Batch(i, b); err != nil {
			return nil, err
		}
		bs = append(bs, b)
	}
	return bs, nil
}

// draw sets v to the initial value of a parameter, the same for every candidate.
func (w workload) draw(p nn.Named, v []float32) {
	scale := p.Init.Scale
	if w.gain > 0 {
		scale *= w.gain
	}
	seed := uint64(len(p.Name))
	for _, c := range p.Name {
		seed = seed*31 + uint64(c)
	}
	random := rand.New(rand.NewPCG(seed, 1))
	for i := range v {
		switch p.Init.Kind {
		case "ones":
			v[i] = 1
		case "normal":
			v[i] = float32(random.NormFloat64() * scale)
		case "uniform":
			v[i] = float32((2*random.Float64() - 1) * scale)
		}
	}
}

// drawn is what draw makes, in Go's heap.
func (w workload) drawn(p nn.Named) []float32 {
	v := make([]float32, p.Elements())
	w.draw(p, v)
	return v
}

// candidate trains a workload.
type candidate interface {
	// step trains on one of the batches and returns the loss before the
	// update.
	step(batch int) (loss float64, err error)
	// memory is the allocator's peaks in bytes; 0 where Go's heap is used.
	memory() (allocated, reserved int64)
	close()
}

// The candidates: tidemark, the same net in Gorgonia's stock operations, and
// tidemark's own graph, both on Gorgonia's TapeMachine.
const (
	tidemark  = "tidemark"
	stockTape = "stock"
	ownTape   = "tape"
)

func newCandidate(name string, w workload, batches []*data.Batch) (candidate, error) {
	switch name {
	case tidemark:
		return newTrainer(w, batches)
	case stockTape:
		return newStockMachine(w, batches)
	case ownTape:
		return newOwnMachine(w, batches)
	}
	return nil, fmt.Errorf("candidate %q is not known", name)
}

// trainer is tidemark's Trainer on the cpu device.
type trainer struct {
	t       *train.Trainer
	dev     *device.CPU
	batches []*data.Batch
}

func newTrainer(w workload, batches []*data.Batch) (*trainer, error) {
	dev := device.NewCPU(alloc.Config{})
	t, err := train.FromSettings(dev, nil, w.settings(), train.TrainerOptions{})
	if err != nil {
		dev.Close()
		return nil, err
	}
	for _, p := range t.Session().Parameters() {
		w.draw(nn.Named{Name: p.Name, Parameter: p.Model}, p.Value.Float32s())
	}
	return &trainer{t, dev, batches}, nil
}

func (t *trainer) step(batch int) (float64, error) {
	stats, err := t.t.Step(func() (*data.Batch, error) { return t.batches[batch], nil })
	if err != nil {
		return 0, err
	}
	return *stats.Loss, nil
}

func (t *trainer) memory() (allocated, reserved int64) {
	s := t.dev.Allocator().Stats()
	return s.Allocated.Peak, s.Reserved.Peak
}

func (t *trainer) close() {
	t.t.Close()
	t.dev.Close()
}

// newOwnMachine runs tidemark's graph with its own operations on Gorgonia's
// TapeMachine, which calls each operation's Do.
func newOwnMachine(w workload, batches []*data.Batch) (*machine, error) {
	model, err := models.New(w.config())
	if err != nil {
		return nil, err
	}
	shape := train.BatchShape{Rows: w.batch, Tokens: w.tokens}
	if w.tokens == 0 {
		_, _, shape.Features, _ = models.Sizes(w.config())
	}
	g, err := train.BuildGraph(model, shape, train.CrossEntropy, nn.Options{Training: true})
	if err != nil {
		return nil, err
	}
	var parameters gorgonia.Nodes
	for _, p := range nn.Parameters(model) {
		n := g.Builder.ParameterNodes()[p.Parameter]
		v := tensor.New(tensor.WithShape(p.Shape...), tensor.WithBacking(w.drawn(p)))
		if err := gorgonia.Let(n, v); err != nil {
			return nil, err
		}
		parameters = append(parameters, n)
	}
	m, err := newMachine(g.Builder.Graph(), g.Loss, parameters, g.Builder.Inputs(), w)
	if err != nil {
		return nil, err
	}
	for _, b := range batches {
		var vs []tensor.Tensor
		for i, n := range m.inputs {
			var backing any = b.Targets
			if i == 0 {
				backing = b.Inputs
				if n.Dtype() == op.Dtype(device.Float32) {
					backing = b.Features
				}
			}
			vs = append(vs, tensor.New(tensor.WithShape(n.Shape()...), tensor.WithBacking(backing)))
		}
		m.values = append(m.values, vs)
	}
	return m, nil
}
