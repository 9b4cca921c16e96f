package scenarios

// pytorchSource says where PyTorch's figures come from.
const pytorchSource = "PyTorch 2.11.0 on one H200, 2026-11-29"

// pytorchPhase is a phase as PyTorch's allocator counted it: allocated bytes.
type pytorchPhase struct{ start, peak, end int64 }

// pytorchRun is the third of three equal training steps, which is the steady
// state: Qwen2.5-1.5B's shape, float32, attention sdpa, AdamW (foreach), 256
// random tokens a row, loss = mean of the logits.
type pytorchRun struct {
	batch int
	// base was allocated before the model was built: the matrix libraries'
	// workspaces. Every other figure includes it.
	base   int64
	phases map[string]pytorchPhase
}

// pytorchQwen are PyTorch's figures for the tutorial's experiment.
var pytorchQwen = []pytorchRun{
	{batch: 16, base: 69_206_016, phases: map[string]pytorchPhase{
		"forward":  {18_602_496_000, 46_301_302_784, 43_576_578_048},
		"backward": {43_576_578_048, 47_024_558_592, 24_777_353_216},
		"optim":    {24_777_353_216, 30_952_210_432, 24_777_353_216},
		"zero":     {24_777_353_216, 24_777_353_216, 18_602_496_000},
	}},
	{batch: 2, base: 69_206_528, phases: map[string]pytorchPhase{
		"forward":  {18_594_574_336, 22_072_817_664, 21_732_292_608},
		"backward": {21_732_292_608, 26_643_237_376, 24_776_247_296},
		"optim":    {24_776_247_296, 30_951_104_512, 24_776_247_296},
		"zero":     {24_776_247_296, 24_776_247_296, 18_594_574_336},
	}},
}

// pytorchQwenSettings are the settings of those runs.
const (
	pytorchQwenPreset    = "qwen2.5-1.5b"
	pytorchQwenTokens    = 256
	pytorchQwenOptimizer = "adamw"
)

// peak is the greatest allocated bytes of a step, base left out, and its phase.
func (r pytorchRun) peak() (bytes int64, phase string) {
	for name, p := range r.phases {
		if p.peak > bytes {
			bytes, phase = p.peak, name
		}
	}
	return bytes - r.base, phase
}

// kept is what the forward pass kept for backward.
func (r pytorchRun) kept() int64 {
	f := r.phases["forward"]
	return f.end - f.start
}
