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
)

// TestEstimateCards judges the card that is named and no other.
func TestEstimateCards(t *testing.T) {
	for name, want := range map[string]string{"L4": "L4 24 GB", "A10": "A10 24 GB", "4090": "RTX 4090 24 GB", "A100 40GB": "A100 40 GB"} {
		code, out, errs := tidemark(t, "estimate", "--preset", "mlp-digits", "--card", name)
		_, cards, _ := strings.Cut(out, "Cards (")
		if code != exitDone || errs != "" || strings.Count(cards, " usable ") != 1 || !strings.Contains(cards, "\n  "+want+" ") {
			t.Errorf("--card %s: status %d, %q, %q", name, code, cards, errs)
		}
	}
	for name, want := range map[string]string{"A100": "A100 40 GB, A100 80 GB", "L40": "--limit-gib", "H100 NVL": "RTX 4060 8 GB"} {
		code, out, errs := tidemark(t, "estimate", "--preset", "mlp-digits", "--card", name)
		if code != exitError || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) {
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
		if code != exitDone || strings.Contains(out, "fits, with") || strings.Contains(out, " -") && strings.Contains(out, "GiB missing") ||
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
		if err := json.Unmarshal([]byte(out), &v); err != nil || code != exitDone || v.OutOfMemory == "" || len(v.Cards) < 20 {
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
// fit with Adam, but with Adafactor.
func TestEstimateNamesAdafactor(t *testing.T) {
	code, out, errs := tidemark(t, "estimate", "--preset", "qwen2.5-1.5b", "--precision", "bf16", "--batch", "1", "--seq", "256", "--card", "4060")
	if code != exitDone || !strings.Contains(out, "would fit with --optimizer adafactor (peak") {
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
		if d := time.Since(began); code != exitInterrupted || d > 2*time.Second || out.Len() > 0 && args[0] != "train" {
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
