package train_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/train"
)

type memoryRecord struct {
	ID           string         `json:"id"`
	Kind         string         `json:"kind"`
	Cfg          map[string]any `json:"cfg"`
	Batch, Seq   int
	Opt          string
	Accum        int
	Ckpt         bool
	Amp, Bf16    bool
	Loss         string
	SetToNone    bool `json:"set_to_none"`
	Params, Base int64
	ModelAlloc   int64 `json:"model_alloc"`
	Steps        []map[string]json.RawMessage
	Peak         int64
	PeakPhase    string `json:"peak_phase"`
}

func TestRecordsDev(t *testing.T) {
	path := os.Getenv("RECORDS")
	if path == "" {
		t.Skip()
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var rs []memoryRecord
	if err := json.Unmarshal(data, &rs); err != nil {
		t.Fatal(err)
	}
	only := os.Getenv("ONLY")
	for _, r := range rs {
		if only != "" && !strings.Contains(r.ID, only) {
			continue
		}
		w := workloadOf(t, &r)
		p, err := train.Predict(w)
		if err != nil {
			fmt.Println(r.ID, err)
			continue
		}
		var marks []instrument.Mark = p.Recorder.Marks()
		fmt.Printf("%-22s params %v model %+d", r.ID, p.Parameters == r.Params, marks[0].AllocatedBytes-(r.ModelAlloc-r.Base))
		steps := p.Recorder.Steps()
		worst := 0.0
		what := ""
		for i, s := range r.Steps {
			for _, ph := range steps[i].Phases {
				raw, ok := s[ph.Name]
				if !ok {
					continue
				}
				var m struct{ Start, Peak, End, Reserved int64 }
				if err := json.Unmarshal(raw, &m); err != nil {
					t.Fatal(err)
				}
				e := func(name string, got, want int64) {
					err := 100 * (float64(got)/float64(want-r.Base) - 1)
					if math.Abs(err) > math.Abs(worst) {
						worst, what = err, fmt.Sprintf("%d.%s.%s %d want %d", i, ph.Name, name, got, want-r.Base)
					}
				}
				e("start", ph.Start.AllocatedBytes, m.Start)
				e("peak", ph.Peak.AllocatedBytes, m.Peak)
				e("end", ph.End.AllocatedBytes, m.End)
				if os.Getenv("VERBOSE") != "" {
					fmt.Printf("\n   %d.%-10s start %+d peak %+d end %+d   reserved %d want %d", i, ph.Name, ph.Start.AllocatedBytes-(m.Start-r.Base),
						ph.Peak.AllocatedBytes-(m.Peak-r.Base), ph.End.AllocatedBytes-(m.End-r.Base), ph.Peak.ReservedBytes, m.Reserved-r.Base)
				}
			}
		}
		pk := p.Recorder.Peak()
		fmt.Printf(" peak %+.3f%% (%+d) %s/%s worst %+.3f%% %s\n", 100*(float64(pk.AllocatedBytes)/float64(r.Peak-r.Base)-1), pk.AllocatedBytes-(r.Peak-r.Base), pk.Phase, r.PeakPhase, worst, what)
	}
}

func workloadOf(t *testing.T, r *memoryRecord) train.Workload {
	t.Helper()
	v := map[string]any{}
	shape := train.BatchShape{Rows: r.Batch, Tokens: r.Seq}
	switch r.Kind {
	case "mlp":
		v = map[string]any{"model_type": "mlp", "dims": r.Cfg["dims"]}
		shape.Features = int(r.Cfg["dims"].([]any)[0].(float64))
	case "gpt":
		v = map[string]any{"model_type": "gpt", "vocab_size": r.Cfg["V"], "n_ctx": r.Cfg["T"], "n_layer": r.Cfg["L"], "n_embd": r.Cfg["d"], "n_head": r.Cfg["h"]}
	default:
		for k, x := range r.Cfg {
			v[k] = x
		}
		v["model_type"] = strings.ToLower(r.Kind)
		if r.Kind == "GPT2" {
			for _, k := range []string{"embd_pdrop", "resid_pdrop"} {
				if v[k] == nil {
					v[k] = 0.1
				}
			}
		}
	}
	b, _ := json.Marshal(v)
	c, err := nn.ParseConfig(b)
	if err != nil {
		t.Fatal(r.ID, err)
	}
	w := train.Workload{Model: c, Shape: shape, Accumulate: r.Accum, GradientCheckpointing: r.Ckpt,
		KeepGradients: !r.SetToNone, Composition: nn.Eager, Loss: train.CrossEntropy, Precision: train.FP32}
	if r.Loss == "mean" {
		w.Loss = train.MeanOutput
	}
	if r.Base == 0 {
		w.Profile, _ = train.FindProfile("h200")
	}
	w.Optimizer = r.Opt
	if r.Opt == "sgdm" {
		w.Optimizer = "sgd-momentum"
	}
	if r.Amp {
		w.Precision = train.AMP
	}
	if r.Bf16 {
		w.Precision = train.BF16
	}
	return w
}
