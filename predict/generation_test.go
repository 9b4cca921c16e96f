package predict

import (
	"fmt"
	"math"
	"testing"

	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/plan"
)

const (
	qwenConfig  = `{"model_type":"qwen2","hidden_size":1536,"intermediate_size":8960,"num_hidden_layers":28,"num_attention_heads":12,"num_key_value_heads":2,"vocab_size":151936,"tie_word_embeddings":true}`
	smolConfig  = `{"model_type":"llama","hidden_size":576,"intermediate_size":1536,"num_hidden_layers":30,"num_attention_heads":9,"num_key_value_heads":3,"vocab_size":49152,"tie_word_embeddings":true}`
	smallConfig = `{"model_type":"llama","hidden_size":576,"intermediate_size":1536,"num_hidden_layers":8,"num_attention_heads":9,"num_key_value_heads":3,"vocab_size":8192,"tie_word_embeddings":true}`
)

func generation(t *testing.T, g Generation, config string) *GenerationPrediction {
	t.Helper()
	c, err := models.ParseConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	g.Model = c
	p, err := PredictGeneration(g)
	if err != nil {
		t.Fatal(err)
	}
	if p.Failed != nil {
		t.Fatal(p.Failed)
	}
	if err := p.Recorder.Check(); err != nil {
		t.Error(err)
	}
	return p
}

// The records are PyTorch 2.11's and transformers 5.17's on an H200: generate,
// greedy, with its dynamic cache. base was allocated before the model was made;
// what was allocated when it began holds the prompt.
func TestGenerationAgainstRecords(t *testing.T) {
	const base = 69206528
	for _, r := range []struct {
		name, config string
		g            Generation
		start, peak  int64
		off          float64 // of the peak's growth, in which blocks that are not split count, too
	}{
		{"qwen2.5-1.5b in bfloat16", qwenConfig, Generation{Rows: 8, Prompt: 128, New: 256, Precision: precision.BF16}, 3156644352, 3272261120, 0.12},
		{"smollm2-135m in float32", smolConfig, Generation{Rows: 4, Prompt: 64, New: 512}, 607285248, 730147328, 0.0002},
	} {
		t.Run(r.name, func(t *testing.T) {
			r.g.Composition = nn.Eager
			p := generation(t, r.g, r.config)
			peak := p.Recorder.Peak()
			start := p.Recorder.Marks()[0].AllocatedBytes + int64(8*r.g.Rows*r.g.Prompt)
			if d := start - (r.start - base); d != 0 {
				t.Errorf("%d bytes are allocated when it begins, %d more than recorded", start, d)
			}
			if off := float64(peak.AllocatedBytes)/float64(r.peak-base) - 1; math.Abs(off) > 0.005 {
				t.Errorf("the peak is %d, off by %.3f %%", peak.AllocatedBytes, 100*off)
			}
			if off := float64(peak.AllocatedBytes-start)/float64(r.peak-r.start) - 1; math.Abs(off) > r.off {
				t.Errorf("the peak is %d above the start, off by %.3f %%", peak.AllocatedBytes-start, 100*off)
			}
			if peak.Phase != "decode" {
				t.Errorf("the peak is in %s", peak.Phase)
			}
			l := p.Recorder.Peak().ByCategory[instrument.Cache]
			if l < p.CacheBytes {
				t.Errorf("%d bytes of cache at the peak, %d at the end", l, p.CacheBytes)
			}
		})
	}
}

// A history of PyTorch's allocations while a small Llama generates, 8 rows, 64
// tokens after 64 in bfloat16: what the prompt took above what was allocated
// when it began, and when the last token was computed. The second is without the
// three copies of the logits that its processors for a least length make, which
// are not predicted.
func TestGenerationAgainstAHistory(t *testing.T) {
	p := generation(t, Generation{Rows: 8, Prompt: 64, New: 64, Precision: precision.BF16, Composition: nn.Eager}, smallConfig)
	begin := p.Recorder.Marks()[0].AllocatedBytes
	prefill := p.Recorder.Phases()[1]
	const recorded = 76461056 - 66091520
	if d := prefill.Peak.AllocatedBytes - begin - recorded; prefill.Name != "prefill" || d < -16384 || d > 16384 {
		t.Errorf("%s takes %d more than recorded", prefill.Name, d)
	}
}

// Plans of tokens between the first and the last have the sizes on the line
// through the first two, whatever way attention goes.
func TestPlansOfTokensLieOnALine(t *testing.T) {
	for name, c := range map[string]struct {
		config    string
		precision precision.Precision
	}{
		"cuDNN":                {smallConfig, precision.BF16},
		"repeated heads":       {smallConfig, precision.FP32},
		"the efficient kernel": {`{"model_type":"llama","hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":99}`, precision.FP32},
		"packed":               {`{"model_type":"gpt2","n_embd":64,"n_layer":2,"n_head":4,"vocab_size":99}`, precision.BF16},
		"packed, plain":        {`{"model_type":"gpt2","n_embd":60,"n_layer":2,"n_head":10,"vocab_size":99}`, precision.FP32},
		"a window that fills":  {windowConfig(`"num_key_value_heads":2`, 37), precision.BF16},
		"a window of one head": {windowConfig(`"num_key_value_heads":1`, 34), precision.FP32},
		"beyond a window":      {windowConfig(`"num_key_value_heads":2`, 8), precision.FP32},
		"plain operations":     {`{"model_type":"llama","hidden_size":60,"intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":10,"vocab_size":99}`, precision.FP32},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := models.ParseConfig([]byte(c.config))
			if err != nil {
				t.Fatal(err)
			}
			model, err := models.New(config)
			if err != nil {
				t.Fatal(err)
			}
			g := Generation{Model: config, Rows: 3, Prompt: 30, New: 12, Precision: c.precision, Composition: nn.Eager}
			p := &generator{g: g, predictor: predictor{Prepared: &Prepared{model: model}}}
			decode, err := p.decoding()
			if err != nil {
				t.Fatal(err)
			}
			var sizes []int64
			for n := range 11 {
				want, err := p.plan(30 + n)
				if err != nil {
					t.Fatal(err)
				}
				got, err := decode(int64(n))
				if err != nil {
					t.Fatal(err)
				}
				if !got.plan.SameSizes(want.plan) {
					t.Errorf("token %d has other sizes than its own plan", n)
				}
				var sum int64
				for _, s := range got.plan.Storages {
					sum += s.Bytes
				}
				sizes = append(sizes, sum)
				if n > 0 && got.plan.SameSizes(p.must(t, 30)) {
					t.Errorf("token %d has the sizes of the first", n)
				}
			}
			if sizes[10] <= sizes[1] { // the first reads what the prompt left of a window
				t.Errorf("sizes %v do not grow", sizes)
			}
		})
	}
}

// windowConfig is a model with layers with and without a window.
func windowConfig(heads string, window int) string {
	return fmt.Sprintf(`{"model_type":"gemma3_text","hidden_size":64,"intermediate_size":96,"num_hidden_layers":3,"num_attention_heads":4,%s,"head_dim":16,
		"vocab_size":99,"sliding_window":%d,"sliding_window_pattern":3}`, heads, window)
}

func (p *generator) must(t *testing.T, past int) *plan.Plan {
	t.Helper()
	q, err := p.plan(past)
	if err != nil {
		t.Fatal(err)
	}
	return q.plan
}

// A cache's bytes are 2 · layers · heads · size · tokens · bytes · rows, and the
// fused composition predicts what decoding takes on meta.
func TestPredictedCaches(t *testing.T) {
	for _, c := range []struct {
		g      Generation
		bytes  int64
		tokens int64
	}{
		{Generation{Composition: nn.Eager, Precision: precision.BF16}, 2, 31},
		{Generation{Composition: nn.Eager}, 4, 31},
		{Generation{}, 4, 31},
		{Generation{Precision: precision.BF16Mixed}, 2, 31},
		{Generation{Cache: train.CacheStatic}, 4, 31},
		{Generation{Cache: train.CacheSliding, Window: 9}, 4, 9},
	} {
		c.g.Rows, c.g.Prompt, c.g.New = 3, 20, 12
		p := generation(t, c.g, smallConfig)
		if want := 2 * 8 * 3 * 64 * c.tokens * c.bytes * 3; p.CacheBytes != want {
			t.Errorf("%+v: a cache of %d bytes, expected %d", c.g, p.CacheBytes, want)
		}
		weights := map[precision.Precision]int64{precision.BF16: 2}[c.g.Precision]
		if want := p.Parameters * max(weights, 4*(1-weights/2)); p.WeightBytes != want {
			t.Errorf("%+v: weights of %d bytes, expected %d", c.g, p.WeightBytes, want)
		}
	}
}

// A layer with a window keeps as many tokens as the window has, once there are so
// many; all of the prompt's are there until the first token comes after them.
func TestCachesOfWindows(t *testing.T) {
	for _, c := range []struct{ prompt, new, sliding, full int64 }{{20, 1, 20, 20}, {20, 2, 8, 21}, {20, 12, 8, 31}, {3, 4, 6, 6}, {3, 12, 8, 14}} {
		g := Generation{Rows: 3, Prompt: int(c.prompt), New: int(c.new), Composition: nn.Eager}
		p := generation(t, g, windowConfig(`"num_key_value_heads":2`, 8))
		if want := 2 * 2 * 16 * 4 * 3 * (2*c.sliding + c.full); p.CacheBytes != want {
			t.Errorf("%d tokens after %d: a cache of %d bytes, expected %d", c.new, c.prompt, p.CacheBytes, want)
		}
	}
}

func TestGenerationRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		g      Generation
		config string
	}{
		"no rows":           {Generation{Prompt: 1, New: 1, Composition: nn.Eager}, smallConfig},
		"beyond context":    {Generation{Rows: 1, Prompt: 12, New: 6, Composition: nn.Eager}, `{"model_type":"llama","hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":99,"max_position_embeddings":16}`},
		"static in PyTorch": {Generation{Rows: 1, Prompt: 4, New: 9, Composition: nn.Eager, Cache: train.CacheStatic}, smallConfig},
		"autocast":          {Generation{Rows: 1, Prompt: 4, New: 9, Composition: nn.Eager, Precision: precision.BF16Mixed}, smallConfig},
		"fused bfloat16":    {Generation{Rows: 1, Prompt: 4, New: 9, Precision: precision.BF16}, smallConfig},
		"no cache":          {Generation{Rows: 1, Prompt: 4, New: 9, Cache: train.CacheNone}, smallConfig},
		"a dense net":       {Generation{Rows: 1, Prompt: 4, New: 9, Composition: nn.Eager}, `{"model_type":"mlp","dims":[3,4]}`},
		"gpt in PyTorch":    {Generation{Rows: 1, Prompt: 4, New: 9, Composition: nn.Eager}, `{"model_type":"gpt","vocab_size":23,"n_ctx":80,"n_layer":2,"n_embd":24,"n_head":3}`},
	} {
		config, err := models.ParseConfig([]byte(c.config))
		if err != nil {
			t.Fatal(err)
		}
		c.g.Model = config
		if _, err := PredictGeneration(c.g); err == nil {
			t.Errorf("%s was predicted", name)
		}
	}

}
