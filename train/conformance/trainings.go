package conformance

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/data/safetensors"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// Golden is a training that PyTorch computed in float64: the initial weights,
// the batches, and every loss, gradient norm and final weight.
type Golden struct {
	Name   string
	file   string
	prefix string // of parameters' names
	config string
	// exact is a file with what is the same in float64 throughout. Transformers
	// computes RMSNorm and the rotary tables in float32 even in a float64 model,
	// so its records carry roundings of 6e-8, which gradients that cancel
	// enlarge (see reference/golden_float64.py).
	exact string
	// loss, inner and noisy are how near a training in float64 comes to the
	// record: its losses, and its gradients, norms and weights.
	loss, inner float64
	noisy       bool
}

// Goldens lists the trainings recorded in a folder.
func Goldens(t *testing.T, folder string) []Golden {
	t.Helper()
	qwen2, err := os.ReadFile(filepath.Join(folder, "golden_qwen2_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(folder, name) }
	return []Golden{
		{Name: "gpt", file: at("golden_gpt.safetensors"), loss: 1e-9, inner: 1e-9,
			config: `{"model_type":"gpt","vocab_size":19,"n_ctx":12,"n_layer":2,"n_embd":16,"n_head":4}`},
		{Name: "qwen2", file: at("golden_qwen2.safetensors"), exact: at("golden_qwen2_float64.safetensors"), prefix: "m.",
			config: string(qwen2), loss: 1e-9, inner: 1e-9},
		{Name: "qwen2 as recorded", file: at("golden_qwen2.safetensors"), prefix: "m.", config: string(qwen2), loss: 1e-8, inner: 3e-6, noisy: true},
	}
}

// GoldenRun is how a golden training is done again.
type GoldenRun struct {
	DType                 device.DType // Float64, Float32, or BFloat16 for mixed precision
	GradientCheckpointing bool
	MicroBatches          int // 1 or 3: a step has three rows
	Optimizer             string
	Composition           nn.Composition
	WorkspaceBytes        int64
}

func (r GoldenRun) String() string {
	return fmt.Sprintf("%v/checkpointing=%v/micro=%d/%s/%v/workspace=%d", r.DType, r.GradientCheckpointing, r.MicroBatches, r.Optimizer, r.Composition, r.WorkspaceBytes)
}

// rows and tokens of a step's batch.
const goldenRows, goldenTokens = 3, 12

// goldenTraining is a golden training on its way.
type goldenTraining struct {
	t     *testing.T
	g     Golden
	run   GoldenRun
	files []*safetensors.File // those of the most exact values first

	dt          device.DType
	mixed       bool
	loss, inner float64
	noisy       bool

	dev       device.Device
	s         *session.Session
	graph     *train.Graph
	plan      *plan.Plan
	optimizer optim.Optimizer
}

// Train trains on a device, in which nothing is allocated, and compares every
// loss, the first gradients, the norms and the final weights.
func (g Golden) Train(t *testing.T, dev device.Device, run GoldenRun) {
	x := &goldenTraining{t: t, g: g, run: run, dev: dev, dt: run.DType, loss: g.loss, inner: g.inner, noisy: g.noisy}
	switch run.DType {
	case device.BFloat16: // numbers of eight bits, in differences
		x.mixed, x.dt, x.loss, x.inner = true, device.Float32, 5e-3, 0.05
	case device.Float32:
		x.loss, x.inner, x.noisy = 1e-4, 1e-4, true
	}
	names := []string{g.file}
	if g.exact != "" && x.dt == device.Float64 {
		names = []string{g.exact, g.file}
	}
	for _, name := range names {
		f, err := safetensors.Open(name)
		x.check(err)
		defer f.Close()
		x.files = append(x.files, f)
	}
	x.start()
	batches, err := x.files[len(x.files)-1].ReadInt64s("data")
	x.check(err)
	losses, norms := x.floats("loss"), x.floats("gradnorm")
	for step := range losses {
		x.step(step, batches[step*goldenRows*(goldenTokens+1):][:goldenRows*(goldenTokens+1)], losses[step], norms[step])
	}
	x.finish(len(losses))
}

func (x *goldenTraining) check(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

// floats is a record of a name.
func (x *goldenTraining) floats(name string) []float64 {
	x.t.Helper()
	for _, f := range x.files {
		if f.Has(name) {
			v, err := f.ReadFloat64s(name)
			x.check(err)
			return v
		}
	}
	x.t.Fatalf("there is no record of %s", name)
	return nil
}

// values is a tensor of the device.
func (x *goldenTraining) values(v device.Tensor) []float64 {
	x.t.Helper()
	f, err := x.s.Floats(v)
	x.check(err)
	return f
}

func (x *goldenTraining) start() {
	config, err := models.ParseConfig([]byte(x.g.config))
	x.check(err)
	model, err := models.New(config)
	x.check(err)
	x.s = session.New(x.dev, nil, session.Options{WorkspaceBytes: x.run.WorkspaceBytes})
	x.check(x.s.Materialize(model, x.dt))
	for _, p := range x.s.Parameters() {
		x.check(x.dev.Upload(p.Value, device.FloatBytes(x.dt, x.floats("init."+x.g.prefix+p.Name))))
	}
	x.graph, err = train.BuildGraph(model, train.BatchShape{Rows: goldenRows / x.run.MicroBatches, Tokens: goldenTokens}, train.CrossEntropy,
		nn.Options{DType: x.dt, Mixed: x.mixed, GradientCheckpointing: x.run.GradientCheckpointing, Training: true, Composition: x.run.Composition})
	x.check(err)
	x.plan, err = x.graph.Compile()
	x.check(err)
	decay := 0.1
	x.optimizer, err = optim.New(x.run.Optimizer, optim.Options{WeightDecay: &decay, Betas: &[2]float64{0.9, 0.95}})
	x.check(err)
}

func (x *goldenTraining) step(step int, batch []int64, wantLoss, wantNorm float64) {
	loss := 0.0
	for m := range x.run.MicroBatches {
		rows := goldenRows / x.run.MicroBatches
		loss += x.microBatch(batch[m*rows*(goldenTokens+1):][:rows*(goldenTokens+1)]) / float64(x.run.MicroBatches)
	}
	if math.Abs(loss-wantLoss) > x.loss*wantLoss {
		x.t.Fatalf("step %d: loss %.15g, PyTorch %.15g", step, loss, wantLoss)
	}
	for _, p := range x.s.Parameters() {
		if step > 0 {
			break
		}
		grad, ok := p.Gradient()
		if !ok {
			x.t.Fatalf("%s has no gradient", p.Name)
		}
		Compare(x.t, "gradient of "+p.Name, x.values(grad), x.floats("grad0."+x.g.prefix+p.Name), x.inner)
	}
	norm, err := optim.ClipGradNorm(x.s.OptimizerMemory(), x.s.WithGradient(), 1)
	x.check(err)
	if math.Abs(norm-wantNorm) > x.inner*wantNorm {
		x.t.Fatalf("step %d: gradient norm %.15g, PyTorch %.15g", step, norm, wantNorm)
	}
	x.check(x.s.Step(x.optimizer, 3e-3))
	x.s.ZeroGrad()
}

// microBatch runs forward and backward and gives the loss.
func (x *goldenTraining) microBatch(batch []int64) float64 {
	var in, targets []byte
	for len(batch) > 0 {
		for i := range goldenTokens {
			in = AppendToken(in, x.graph.Specs[0].DType, batch[i])
			targets = AppendToken(targets, x.graph.Specs[1].DType, batch[i+1])
		}
		batch = batch[goldenTokens+1:]
	}
	ids, err := x.s.Input("batch", x.graph.Specs[0], in)
	x.check(err)
	defer ids.Release()
	y, err := x.s.Input("targets", x.graph.Specs[1], targets)
	x.check(err)
	defer y.Release()
	r, err := x.s.Forward(x.plan, ids, y)
	x.check(err)
	defer r.Release()
	loss, err := x.s.Scalar(r.Output(0))
	x.check(err)
	seed, err := x.s.SeedGradient(r, 1/float64(x.run.MicroBatches))
	x.check(err)
	defer seed.Release()
	x.check(x.s.Backward(r, seed))
	return loss
}

// finish compares the final weights and gives everything back.
func (x *goldenTraining) finish(steps int) {
	for _, p := range x.s.Parameters() {
		if x.mixed {
			break // Adam makes steps of one size of gradients that are mostly rounding
		}
		got, want := x.values(p.Value), x.floats("final."+x.g.prefix+p.Name)
		if from, to := KeyBias(p.Name, len(got)); x.noisy && to > 0 {
			// Adam divides what is left of a gradient of zero by its own size, and
			// what comes of that is noise of up to the learning rate in each step.
			Compare(x.t, "final "+p.Name, got[from:to], want[from:to], 3e-3*float64(steps))
			clear(got[from:to])
			clear(want[from:to])
		}
		Compare(x.t, "final "+p.Name, got, want, x.inner)
	}
	x.optimizer.Release()
	x.s.Close()
	// A card's libraries keep their workspace.
	if n := x.dev.Allocator().Stats().Allocated.Current; n != 0 && n != x.run.WorkspaceBytes {
		x.t.Errorf("%d bytes are still allocated", n)
	}
}

// Complete finds parameters in the record that the model has not.
func (g Golden) Complete(t *testing.T) {
	f, err := safetensors.Open(g.file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	config, err := models.ParseConfig([]byte(g.config))
	if err != nil {
		t.Fatal(err)
	}
	model, err := models.New(config)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, p := range nn.Parameters(model) {
		have["final."+g.prefix+p.Name] = true
	}
	for _, name := range f.Names() {
		tied := strings.HasSuffix(name, "lm_head.weight") && g.prefix == "m." // to the embedding
		if strings.HasPrefix(name, "final.") && !have[name] && !tied {
			t.Errorf("%s: the model has no %s", g.Name, name)
		}
	}
}

// KeyBias is the part of a parameter of n elements that is added to the keys of
// an attention. A softmax does not change when every score of a row grows by the
// same number, so its gradient is zero but for rounding.
func KeyBias(name string, n int) (from, to int) {
	switch {
	case strings.HasSuffix(name, "qkv.bias"):
		return n / 3, 2 * n / 3
	case strings.HasSuffix(name, "k_proj.bias"), strings.HasSuffix(name, "self.key.bias"):
		return 0, n
	}
	return 0, 0
}

// Compare allows the tolerance relative to the largest element: single ones
// can be near zero by cancellation.
func Compare(t *testing.T, what string, got, want []float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s has %d elements, PyTorch's %d", what, len(got), len(want))
	}
	var scale float64
	for _, v := range want {
		scale = max(scale, math.Abs(v))
	}
	for i := range got {
		if !(math.Abs(got[i]-want[i]) <= tolerance*max(scale, 1e-3)) {
			t.Fatalf("%s[%d] = %.15g, PyTorch %.15g", what, i, got[i], want[i])
		}
	}
}

// AppendToken appends a token in a type's bytes, int64's or int32's.
func AppendToken(b []byte, dt device.DType, token int64) []byte {
	if dt == device.Int64 {
		return binary.LittleEndian.AppendUint64(b, uint64(token))
	}
	return binary.LittleEndian.AppendUint32(b, uint32(token))
}
