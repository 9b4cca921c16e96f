package predict

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/optim"
	"github.com/tidemark-lab/tidemark/train"
)

func small(t *testing.T, config string) models.Config {
	t.Helper()
	c, err := models.ParseConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const smallLlama = `{"model_type":"llama","vocab_size":4096,"hidden_size":256,"intermediate_size":704,
	"num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":2}`

// TestFloor holds the verdicts' lower bound to the predictions: for every
// optimizer, precision and composition it is never above the peak.
func TestFloor(t *testing.T) {
	models := map[string]string{
		"llama": smallLlama,
		"gpt2":  `{"model_type":"gpt2","vocab_size":512,"n_positions":64,"n_embd":64,"n_layer":2,"n_head":2,"embd_pdrop":0,"resid_pdrop":0,"attn_pdrop":0}`,
		"gpt":   `{"model_type":"gpt","vocab_size":65,"n_ctx":64,"n_layer":2,"n_embd":64,"n_head":2}`,
		"mlp":   `{"model_type":"mlp","dims":[16,2048,2048,10]}`,
	}
	for name, config := range models {
		for _, composition := range []nn.Composition{nn.Eager, nn.Fused} {
			for _, in := range []precision.Precision{precision.FP32, precision.BF16Mixed, precision.BF16} {
				if composition == nn.Fused && in == precision.BF16 {
					continue
				}
				for _, checkpointing := range []bool{false, true} {
					if name == "mlp" && checkpointing {
						continue
					}
					w := Workload{Model: small(t, config), Shape: train.BatchShape{Rows: 1, Tokens: 8}, Loss: train.CrossEntropy,
						Optimizer: "sgd", Composition: composition, Precision: in, GradientCheckpointing: checkpointing, Steps: judgedSteps}
					if name == "mlp" {
						w.Shape = train.BatchShape{Rows: 1, Features: 16}
					}
					p, err := Prepare(w)
					if err != nil {
						t.Fatal(err)
					}
					for _, w.Optimizer = range optim.Names() {
						own, err := p.With(w).Predict(w.Allocator)
						if err != nil {
							t.Fatal(err)
						}
						s := &search{parameters: own.Parameters, trained: own.Trained}
						floor, peak := s.floor(w), own.Recorder.Peak().AllocatedBytes
						if floor > peak || floor < 2*own.Parameters*2 {
							t.Errorf("%s %v %s %s: the floor is %d, the peak %d, of %d parameters", name, composition, in, w.Optimizer, floor, peak, own.Parameters)
						}
					}
				}
			}
		}
	}
}

// TestJudgeFailed is about a training that no device has addresses for: it fits
// nowhere, and says nothing of how much is missing.
func TestJudgeFailed(t *testing.T) {
	w := Workload{Model: small(t, `{"model_type":"llama","vocab_size":100,"hidden_size":16,"intermediate_size":32,
		"num_hidden_layers":1,"num_attention_heads":2,"max_position_embeddings":2147483647}`),
		Shape: train.BatchShape{Rows: 1 << 20, Tokens: 1 << 20}, Loss: train.CrossEntropy, Optimizer: "adamw", Composition: nn.Eager}
	own, err := Predict(w)
	if err != nil || own.Failed == nil {
		t.Fatal(err, own)
	}
	// As much memory as the part of the training that got through has needed.
	large := Card{Name: "large", MemoryBytes: own.Recorder.Peak().ReservedBytes + ContextBytes + gib}
	verdicts, err := Judge(w, own, append(Cards(), large), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range verdicts {
		if v.Fits || v.Fragmented || v.RoomBytes != nil {
			t.Errorf("%+v", v)
		}
		for _, r := range v.Remedies {
			if r.PeakBytes > v.UsableBytes {
				t.Errorf("%s: %+v", v.Name, r)
			}
		}
	}
	w = Workload{Model: small(t, `{"model_type":"mlp","dims":[16777216,16777216]}`), Shape: train.BatchShape{Rows: 1, Features: 1 << 24},
		Loss: train.CrossEntropy, Optimizer: "adamw", Composition: nn.Eager}
	if own, err = Predict(w); err != nil || own.Failed == nil {
		t.Fatal(err, own)
	}
	if verdicts, err = Judge(w, own, Cards(), 0); err != nil {
		t.Fatal(err)
	}
	for _, v := range verdicts {
		if v.Fits || v.RoomBytes != nil || len(v.Remedies) > 0 || len(v.Tried) == 0 {
			t.Errorf("weights of a pebibyte: %+v", v)
		}
	}
}

// TestJudgedMicroBatches: the peak of the micro-batches that are gone through is
// that of all.
func TestJudgedMicroBatches(t *testing.T) {
	for _, optimizer := range []string{"adamw", "sgd"} {
		for _, checkpointing := range []bool{false, true} {
			w := Workload{Model: small(t, smallLlama), Shape: train.BatchShape{Rows: 2, Tokens: 256}, Loss: train.CrossEntropy,
				Optimizer: optimizer, Composition: nn.Eager, GradientCheckpointing: checkpointing, Accumulate: 16, Steps: judgedSteps}
			all, err := Predict(w)
			if err != nil {
				t.Fatal(err)
			}
			w.MicroBatches = judgedMicroBatches
			some, err := Predict(w)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := all.Recorder.Peak().AllocatedBytes, some.Recorder.Peak().AllocatedBytes; a != b {
				t.Errorf("%s, checkpointing %v: 16 micro-batches have a peak of %d, %d of them one of %d", optimizer, checkpointing, a, judgedMicroBatches, b)
			}
		}
	}
}

// deepLlama has enough layers for outlines.
const deepLlama = `{"model_type":"llama","vocab_size":4096,"hidden_size":256,"intermediate_size":704,
	"num_hidden_layers":14,"num_attention_heads":4,"num_key_value_heads":2}`

// TestRemediesRun predicts what each verdict advises, and finds it to fit; where
// nothing is advised, everything that was tried together does not.
func TestRemediesRun(t *testing.T) {
	if testRemediesRun(t, smallLlama, 12)+testRemediesRun(t, deepLlama, 6) == 0 {
		t.Error("no limit asks for two changes")
	}
}

// testRemediesRun counts the remedies of several changes.
func testRemediesRun(t *testing.T, config string, limits int) (pairs int) {
	t.Helper()
	w := Workload{Model: small(t, config), Shape: train.BatchShape{Rows: 12, Tokens: 256}, Loss: train.CrossEntropy,
		Optimizer: "adamw", Composition: nn.Eager, Steps: judgedSteps}
	own, err := Predict(w)
	if err != nil {
		t.Fatal(err)
	}
	least := w
	least.Shape.Rows, least.Optimizer, least.Precision, least.GradientCheckpointing = 1, "sgd", precision.BF16, true
	p, err := Predict(least)
	if err != nil {
		t.Fatal(err)
	}
	bottom, top := p.Recorder.Peak().AllocatedBytes, own.Recorder.Peak().ReservedBytes
	cards := make([]Card, 0, limits)
	for n := range limits {
		cards = append(cards, Card{Name: fmt.Sprint(n), MemoryBytes: bottom + (top-bottom)*int64(n-1)/int64(limits-2) + ContextBytes})
	}
	verdicts, err := Judge(w, own, cards, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range verdicts {
		if n := len(v.Remedies); i > 1 && !v.Fits && n == 0 || n > 0 && len(v.Tried) > 0 {
			t.Errorf("%s: %+v", v.Name, v)
		}
		for _, r := range v.Remedies {
			x := w
			changes := parseFlags(t, &x, r.Change)
			if changes > 1 {
				pairs++
			}
			x.Allocator.LimitBytes = v.UsableBytes
			p, err := Predict(x)
			if err == nil {
				x.Allocator.LimitBytes = 0
				free, err := Predict(x)
				if err != nil || free.Recorder.Peak().AllocatedBytes != r.PeakBytes {
					t.Errorf("%s has a peak of %d: %v", r.Change, r.PeakBytes, err)
				}
			}
			if err != nil || p.Failed != nil {
				t.Errorf("%s within %d: %v, %v", r.Change, v.UsableBytes, err, p.Failed)
			}
		}
	}
	return pairs
}

// parseFlags applies flags as the command line does.
func parseFlags(t *testing.T, w *Workload, flags string) (changes int) {
	t.Helper()
	words := strings.Fields(flags)
	for i := 0; i < len(words); i++ {
		changes++
		if words[i] == "--gradient-checkpointing" {
			w.GradientCheckpointing = true
			continue
		}
		flag, value := words[i], words[i+1]
		i++
		switch flag {
		case "--optimizer":
			w.Optimizer = value
		case "--precision":
			w.Precision = precision.Precision(value)
		case "--batch":
			fmt.Sscan(value, &w.Shape.Rows)
		case "--accumulate":
			changes--
			fmt.Sscan(value, &w.Accumulate)
		case "--alloc-conf":
			w.Allocator.ExpandableSegments = true
		default:
			t.Errorf("%q names %s", flags, flag)
		}
	}
	return changes
}

// TestInterrupted ends predictions and verdicts soon after they are asked to.
func TestInterrupted(t *testing.T) {
	c, err := models.Preset("qwen2.5-1.5b")
	if err != nil {
		t.Fatal(err)
	}
	w := Workload{Model: c, Shape: train.BatchShape{Rows: 16, Tokens: 256}, Loss: train.CrossEntropy, Optimizer: "adamw", Composition: nn.Eager}
	own, err := Predict(w)
	if err != nil {
		t.Fatal(err)
	}
	for _, after := range []time.Duration{0, 30 * time.Millisecond, 100 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(context.Background(), after)
		w.Interrupted = ctx.Err
		began := time.Now()
		_, err := Judge(w, own, Cards(), 0)
		if d := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || d > after+2*time.Second {
			t.Errorf("verdicts after %v ended after %v with %v", after, d, err)
		}
		cancel()
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w.Interrupted = ctx.Err
	if _, err := Predict(w); !errors.Is(err, context.Canceled) {
		t.Errorf("a prediction that was interrupted before it began: %v", err)
	}
}
