package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
)

// TestEstimateCards judges the card that is named and no other.
func TestEstimateCards(t *testing.T) {
	for name, want := range map[string]string{"L4": "L4 24 GB", "A10": "A10 24 GB", "4090": "RTX 4090 24 GB", "A100 40GB": "A100 40 GB"} {
		code, out, errs := tidemark(t, "estimate", "--preset", "mlp-digits", "--card", name)
		_, cards, _ := strings.Cut(out, "Cards (")
		if code != shell.ExitDone || errs != "" || strings.Count(cards, " usable ") != 1 || !strings.Contains(cards, "\n  "+want+" ") {
			t.Errorf("--card %s: status %d, %q, %q", name, code, cards, errs)
		}
	}
	for name, want := range map[string]string{"A100": "A100 40 GB, A100 80 GB", "L40": "--limit-gib", "H100 NVL": "RTX 4060 8 GB"} {
		code, out, errs := tidemark(t, "estimate", "--preset", "mlp-digits", "--card", name)
		if code != shell.ExitError || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) {
			t.Errorf("--card %s: status %d, %q, %q", name, code, out, errs)
		}
	}
}

// TestEstimateFailed is about trainings that no device has addresses for.
func TestEstimateFailed(t *testing.T) {
	dir := inFolder(t)
	config := filepath.Join(dir, "long.json")
	if err := os.WriteFile(config, []byte(`{"model_type":"llama","vocab_size":100,"hidden_size":16,"intermediate_size":32,
		"num_hidden_layers":1,"num_attention_heads":2,"max_position_embeddings":2147483647}`), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"estimate", "--config", config, "--seq", "16777216", "--batch", "65536"},
		{"estimate", "--preset", "gpt2", "--batch", "16777216"},
	} {
		code, out, errs := tidemark(t, args...)
		if code != shell.ExitDone || strings.Contains(out, "fits, with") || strings.Contains(out, " -") && strings.Contains(out, "GiB missing") ||
			!strings.Contains(out, "does not fit: it runs out of memory on any device") {
			t.Errorf("%q: status %d, %q\n%s", args, code, errs, out)
		}
		code, out, errs = tidemark(t, append(args, "--json")...)
		var v struct {
			OutOfMemory string `json:"out_of_memory"`
			Cards       []struct {
				Fits bool
				Room *int64 `json:"room_bytes"`
			}
		}
		if err := json.Unmarshal([]byte(out), &v); err != nil || code != shell.ExitDone || v.OutOfMemory == "" || len(v.Cards) < 20 {
			t.Fatalf("%q: status %d, %q, %v", args, code, errs, err)
		}
		for _, c := range v.Cards {
			if c.Fits || c.Room != nil {
				t.Errorf("%q: %+v", args, c)
			}
		}
	}
}

// TestEstimateNamesAdafactor: on a small card everything in bfloat16 does not
// fit with Adam, but with Adafactor, which needs checkpointing beside it only
// because free memory is in pieces.
func TestEstimateNamesAdafactor(t *testing.T) {
	code, out, errs := tidemark(t, "estimate", "--preset", "qwen2.5-1.5b", "--precision", "bf16", "--batch", "1", "--seq", "256", "--card", "4060")
	if code != shell.ExitDone || !strings.Contains(out, "would fit with --gradient-checkpointing --optimizer adafactor (peak") {
		t.Errorf("status %d, %q\n%s", code, errs, out)
	}
}

// TestStopsWhenAsked ends computations within a second of a signal.
func TestStopsWhenAsked(t *testing.T) {
	for _, args := range [][]string{
		{"estimate", "--preset", "qwen2.5-1.5b", "--batch", "16", "--layers", "400"},
		{"activations", "--preset", "qwen2.5-1.5b", "--layers", "400"},
		{"train", "--preset", "qwen2.5-1.5b", "--layers", "400", "--device", "meta"},
	} {
		ctx, cancel := context.WithTimeoutCause(context.Background(), 300*time.Millisecond, context.Canceled)
		stop, interrupt := context.WithCancel(context.Background())
		go func() {
			<-ctx.Done()
			interrupt()
		}()
		inFolder(t)
		var out, errs bytes.Buffer
		began := time.Now()
		code := run(stop, append([]string{"tidemark"}, args...), &out, &errs)
		if d := time.Since(began); code != shell.ExitInterrupted || d > 2*time.Second || out.Len() > 0 && args[0] != "train" {
			t.Errorf("%q: status %d after %v, %q", args, code, d, errs.String())
		}
		cancel()
	}
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := untilDone(done, func() (int, error) { select {} }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestEstimateAnswersFirst: what a training needs, where, whether it fits and the
// cheapest change stand in the first lines, and tables only where asked for.
func TestEstimateAnswersFirst(t *testing.T) {
	base := []string{"estimate", "--preset", "gpt-char", "--batch", "64"}
	for _, c := range []struct {
		flags string
		lines []string
	}{
		{"--card h200", []string{"The training peaks at 2.608 GiB allocated, in backward of step 1: ", "The allocator reserves up to 2.865 GiB for it.",
			"H200 141 GB: fits, with 136.95 GiB to spare.", ""}},
		{"", []string{"The training peaks at 2.608 GiB", "The allocator reserves", "It fits all of ", ""}},
		{"--batch 640", []string{"The training peaks at ", "The allocator reserves", "It fits ", "The cheapest change that makes it fit: --", ""}},
		{"--batch 64000 --seq 256", []string{"The training peaks at ", "The allocator reserves", "It fits none of ", "The cheapest change that makes it fit: --", ""}},
		{"--limit-gib 1 --card h200", []string{"It runs out of memory within --limit-gib, in forward.", "Without that limit it peaks at 2.608 GiB allocated, in backward of step 1: ",
			"--limit-gib: does not fit: 1.61 GiB missing.", "The cheapest change that makes it fit: --gradient-checkpointing (peak 0.80 GiB).", ""}},
		{"--limit-gib 0.01 --card h200", []string{"It runs out", "Without that limit", "--limit-gib: does not fit", "Nothing that was tried makes it fit.", ""}},
		{"--batch 16777216 --card h200", []string{"It needs more than a device has addresses for, in forward.", "It failed, and got as far as ",
			"H200 141 GB: does not fit: it runs out of memory on any device.", "The cheapest change", ""}},
	} {
		code, out, errs := tidemark(t, append(base, strings.Fields(c.flags)...)...)
		lines := strings.Split(out, "\n")
		if code != shell.ExitDone || errs != "" || len(lines) <= len(c.lines) {
			t.Errorf("%s: status %d, %q, %q", c.flags, code, out, errs)
			continue
		}
		for i, want := range c.lines {
			if !strings.HasPrefix(lines[i], want) || want == "" && lines[i] != "" {
				t.Errorf("%s: line %d is %q, want %q", c.flags, i+1, lines[i], want)
			}
		}
		if strings.Contains(out, "Peak allocated") || !strings.Contains(out, "--details") {
			t.Errorf("%s prints tables, or does not say how to:\n%s", c.flags, out)
		}
		_, detailed, _ := tidemark(t, append(append(base, strings.Fields(c.flags)...), "--details")...)
		if cards, _, _ := strings.Cut(out, "\nassumed"); !strings.HasPrefix(detailed, cards) || !strings.Contains(detailed, "Phases, in") {
			t.Errorf("%s --details has other beginnings, or no tables:\n%s", c.flags, detailed)
		}
	}
}

// TestEstimatePartial: the peak of the part of a training that got through is
// never printed as the peak.
func TestEstimatePartial(t *testing.T) {
	for _, flags := range []string{"--limit-gib 1", "--batch 16777216"} {
		args := append([]string{"estimate", "--preset", "gpt-char", "--batch", "64", "--card", "h200", "--details"}, strings.Fields(flags)...)
		_, out, _ := tidemark(t, args...)
		if strings.Contains(out, "  Peak allocated") || strings.Contains(out, "  at the peak") ||
			!strings.Contains(out, "the peaks are of the part that got through, not what the run needs\n  Partial peak allocated ") {
			t.Errorf("%s:\n%s", flags, out)
		}
		_, out, _ = tidemark(t, append(args, "--json")...)
		var v struct {
			OOM    struct{ Ended bool }
			Needed *struct {
				AllocatedBytes int64 `json:"allocated_bytes"`
			} `json:"peak_without_limit"`
		}
		if err := json.Unmarshal([]byte(out), &v); err != nil || !v.OOM.Ended || (v.Needed != nil) != strings.Contains(flags, "limit") {
			t.Errorf("%s: %+v, %v", flags, v, err)
		}
	}
}
