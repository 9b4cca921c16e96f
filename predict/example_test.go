package predict_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/data"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/predict"
	"github.com/tidemark-lab/tidemark/train"
)

// Gated is a layer of one's own: x (B, in) to logits (B, out) through a hidden
// layer, SiLU of one Linear times another.
type Gated struct{ Gate, Up, Head *nn.Linear }

func (*Gated) Type() string { return "Gated" }

func (g *Gated) Members(m *nn.Members) {
	m.Module("gate", g.Gate)
	m.Module("up", g.Up)
	m.Module("head", g.Head)
}

func (g *Gated) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	c := b.Chain() // keeps the first error
	gate, up := c.Call("gate", g.Gate, in[0]), c.Call("up", g.Up, in[0])
	h := c.Apply(func() (*gorgonia.Node, error) { return op.SwiGLU(gate, up) })
	return nn.Tensor(c.Call("head", g.Head, h)), c.Err()
}

// tempered is a loss of one's own: the cross-entropy of logits at a temperature of 2.
var tempered = train.NewLoss("tempered", true, func(_ *nn.Builder, logits *gorgonia.Node, _ int, targets *gorgonia.Node) (*gorgonia.Node, error) {
	soft, err := op.Scale(logits, 0.5)
	if err != nil {
		return nil, err
	}
	return op.CrossEntropy(soft, targets, data.Ignore)
})

func model() *Gated {
	const hidden = 64
	return &Gated{nn.NewLinear(data.DigitFeatures, hidden, true), nn.NewLinear(data.DigitFeatures, hidden, true),
		nn.NewLinear(hidden, data.DigitClasses, true)}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// training is a trainer on the cpu; train.NewTrainer takes a card as well (device/cuda).
func training(dev device.Device, onForward func(nn.Call)) *train.Trainer {
	adamw, err := optim.New("adamw", optim.Options{})
	check(err)
	t, err := train.NewTrainer(dev, nil, model(), tempered, adamw, train.Options{
		Batch: train.BatchShape{Rows: 32, Features: data.DigitFeatures}, Steps: 200, Schedule: optim.Schedule{LR: 1e-3},
		Seed: 1, EvaluateEvery: 100, OnForward: onForward})
	check(err)
	return t
}

func Example() {
	// The batches: images of digits, and some that are held out.
	digits, err := data.Digits(data.DigitsOptions{Seed: 1, Split: data.Train, Batch: 32})
	check(err)
	heldOut, err := data.Digits(data.DigitsOptions{Seed: 1, Split: data.Validation, Batch: 32, Samples: 320})
	check(err)
	dir, err := os.MkdirTemp("", "gated")
	check(err)
	defer os.RemoveAll(dir)

	// Train, with a forward hook, and save.
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	t := training(dev, func(c nn.Call) { fmt.Printf("%q %s: %d elements\n", c.Path, c.Module.Type(), c.Elements()) })
	better := 0.0
	check(t.Run(context.Background(), train.Sources{Train: digits, Validation: heldOut}, train.LoopOptions{SaveFolder: dir,
		OnEvaluation: func(step int, e train.Evaluation) {
			fmt.Printf("after %d steps the held-out loss is lower: %v\n", step, better == 0 || e.Loss < better)
			better = e.Loss
		}}))
	t.Close()

	// Resume what was saved; one more step.
	t = training(dev, nil)
	defer t.Close()
	check(t.Restore(dir))
	batches := data.Prefetch(context.Background(), digits, t.Steps(), data.PrefetchOptions{})
	defer batches.Close()
	_, err = t.Step(batches.Next)
	check(err)
	fmt.Println("steps:", t.Steps())

	// Predict a larger batch without running it, and say what memory is for at the peak.
	p, err := predict.Predict(predict.Workload{Module: model(), Shape: train.BatchShape{Rows: 4096, Features: data.DigitFeatures},
		Loss: tempered, Optimizer: "adamw"})
	check(err)
	peak := p.Recorder.Peak()
	fmt.Printf("peak %d bytes in %s: %v\n", peak.AllocatedBytes, peak.Phase, peak.ByCategory)
	// Output:
	// "gate" Linear: 2048 elements
	// "up" Linear: 2048 elements
	// "head" Linear: 320 elements
	// "" Gated: 320 elements
	// after 100 steps the held-out loss is lower: true
	// after 200 steps the held-out loss is lower: true
	// steps: 201
	// peak 26939904 bytes in batch: input 24.5 MiB (95 %), optimizer state 792.0 KiB (3 %), parameter 396.0 KiB (2 %), activation 512 B (<1 %)
}
