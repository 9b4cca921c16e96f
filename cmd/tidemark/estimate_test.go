package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
)

func TestEstimateArithmetic(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--parameters 7000000000 --bits 16 --reserve-gib 4", "14,000,000,000 bytes, 13.04 GiB"},
		{"--parameters 7000000000 --bits 16 --reserve-gib 4", "17.04 GiB"},
		{"--kv-layers 32 --kv-heads 8 --head-dim 128 --tokens 8192 --bits 16", "1,073,741,824 bytes"},
		{"--kv-layers 32 --kv-heads 8 --head-dim 128 --tokens 8192 --bits 16 --sequences 4", "4.00 GiB"},
	} {
		code, out, errs := tidemark(t, append([]string{"estimate"}, strings.Fields(c.args)...)...)
		if code != shell.ExitDone || errs != "" || !strings.Contains(out, c.want) {
			t.Errorf("%s: status %d, %q, %q", c.args, code, out, errs)
		}
	}
}

func TestEstimateRefuses(t *testing.T) {
	dir := inFolder(t)
	config := filepath.Join(dir, "config.json")
	if err := os.WriteFile(config, []byte(`{"model_type":"llama","hidden_size":64}`), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"", "name a model"},
		{"--config " + config, "is missing"},
		{"--parameters 7 --bits 0", "--bits 0"},
		{"--preset gpt2 --bits 4", "plain arithmetic"},
		{"--parameters 7 --batch 3", "--batch"},
		{"--kv-layers 3 --layers 4", "--layers"},
		{"--kv-layers 3 --reserve-gib 4", "--reserve-gib"},
		{"--kv-layers 3", "--kv-heads 0"},
		{"--preset gpt2 --batch 0", "--batch 0"},
		{"--preset gpt2 --seq 1025", "--seq 1025"},
		{"--preset gpt2 --precision fp8", "fp32, tf32, bf16-mixed or bf16"},
		{"--preset gpt2 --profile tpu", "h200"},
		{"--preset gpt2 --recipe lightning", "it is loop or hf-trainer"},
		{"--preset gpt2 --recipe hf-trainer --keep-outputs", "keep-outputs is the loop's"},
		{"--preset gpt2 --recipe hf-trainer --precision bf16", "bf16-mixed is"},
		{"--preset mlp-digits --recipe hf-trainer", "transformers' language models"},
		{"--preset gpt2 --optimizer tiger", "tiger"},
		{"--preset gpt2 --limit-gib -1", "--limit-gib"},
		{"--preset gpt2 --composition fused --precision bf16", "fp32, tf32 or bf16-mixed"},
		{"--preset gpt2 --card abacus", "abacus"},
		{"--preset mlp-digits --seq 4", "dense net"},
	} {
		code, out, errs := tidemark(t, append([]string{"estimate"}, strings.Fields(c.args)...)...)
		if code != shell.ExitError || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: status %d, %q, %q", c.args, code, out, errs)
		}
	}
}

func TestEstimateJSON(t *testing.T) {
	code, out, errs := tidemark(t, "estimate", "--preset", "gpt-char", "--batch", "16", "--seq", "256", "--card", "h200", "--profile", "none", "--json")
	if code != shell.ExitDone {
		t.Fatal(errs)
	}
	var v struct {
		Parameters int64
		Basis      string
		Steps      []struct{ Phases []struct{ Phase string } }
		Peak       struct {
			AllocatedBytes int64 `json:"allocated_bytes"`
			Phase          string
			ByCategory     map[string]int64 `json:"by_category"`
		}
		Cards []struct {
			Name string
			Fits bool
		}
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, n := range v.Peak.ByCategory {
		total += n
	}
	// PyTorch's own peak on an H200, less the libraries' workspaces.
	const recorded = 849832448 - 68157440
	if v.Basis != "calculated" || v.Peak.Phase != "backward" || v.Peak.AllocatedBytes != recorded || total != recorded {
		t.Errorf("peak %+v adds up to %d, recorded is %d in backward", v.Peak, total, recorded)
	}
	if len(v.Steps) != 3 || len(v.Steps[0].Phases) != 5 || len(v.Cards) != 1 || !v.Cards[0].Fits {
		t.Errorf("steps %v, cards %v", v.Steps, v.Cards)
	}
}

// TestEstimateFragmented is about a card with enough memory for what is
// allocated, but not in the pieces that the cache is in.
func TestEstimateFragmented(t *testing.T) {
	args := []string{"estimate", "--preset", "gpt2", "--batch", "100", "--precision", "bf16-mixed", "--accumulate", "4", "--card", "h200"}
	code, out, errs := tidemark(t, args...)
	if code != shell.ExitDone {
		t.Fatal(errs)
	}
	for _, want := range []string{"does not fit: what is allocated would, but not in fragments; up to 9.34 GiB missing",
		"would fit with --alloc-conf expandable_segments:True (peak 139.35 GiB); or --gradient-checkpointing (peak 63.54 GiB)"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if _, out, _ = tidemark(t, append(args, "--alloc-conf", "expandable_segments:True")...); !strings.Contains(out, "GiB usable  fits") {
		t.Errorf("expandable segments do not fit:\n%s", out)
	}
}

func TestEstimateWithinLimit(t *testing.T) {
	code, out, errs := tidemark(t, "estimate", "--preset", "gpt-char", "--batch", "64", "--limit-gib", "1", "--card", "h200")
	if code != shell.ExitDone {
		t.Fatal(errs)
	}
	for _, want := range []string{"runs out of memory within --limit-gib", "--limit-gib", "does not fit", "would fit with --gradient-checkpointing (peak 0.80 GiB); or --batch 16 --accumulate 4"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

// TestEstimateRecipe: the recipe is in the settings, chooses the optimizer where
// none is named, and the versions that a prediction follows are printed.
func TestEstimateRecipe(t *testing.T) {
	for _, c := range []struct {
		args, recipe, optimizer string
		kept                    bool
	}{
		{"", "loop", "adamw", false},
		{"--keep-outputs", "loop", "adamw", true},
		{"--recipe hf-trainer --precision bf16-mixed", "hf-trainer", "adamw-fused", false},
		{"--recipe hf-trainer --optimizer adafactor", "hf-trainer", "adafactor", false},
	} {
		args := append(strings.Fields("estimate --preset gpt2 --batch 2 --seq 64 --card h200 --json"), strings.Fields(c.args)...)
		code, out, errs := tidemark(t, args...)
		var v struct {
			Settings struct {
				Recipe, Optimizer string
				KeepOutputs       bool `json:"keep_outputs"`
			}
		}
		if err := json.Unmarshal([]byte(out), &v); code != 0 || err != nil {
			t.Fatalf("%s: status %d, %v, %s", c.args, code, err, errs)
		}
		if s := v.Settings; s.Recipe != c.recipe || s.Optimizer != c.optimizer || s.KeepOutputs != c.kept {
			t.Errorf("%s: %+v", c.args, s)
		}
		if !strings.Contains(out, "PyTorch 2.11.0, transformers 5.17.0") {
			t.Errorf("%s: the versions are not named", c.args)
		}
	}
}
