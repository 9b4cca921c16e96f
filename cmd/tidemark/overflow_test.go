package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
)

// TestSizesBeyondCounting gives configs and flags whose products do not fit 64
// bits: each is one line, at once, and none is a number of bytes.
func TestSizesBeyondCounting(t *testing.T) {
	dir := inFolder(t)
	file := func(name, config string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(config), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	wide := file("wide.json", `{"model_type": "gpt", "vocab_size": 1, "n_ctx": 16, "n_layer": 1, "n_embd": 2147483646, "n_head": 2}`)
	all := file("all.json", `{"model_type": "gpt", "vocab_size": 1, "n_ctx": 2147483647, "n_layer": 1, "n_embd": 2147483646, "n_head": 2}`)
	positions := file("positions.json", `{"model_type": "gpt2", "vocab_size": 1, "n_embd": 2147483646, "n_layer": 1, "n_head": 2, "n_positions": 2147483647, "n_inner": 1}`)
	long := file("long.json", `{"model_type":"llama","vocab_size":100,"hidden_size":16,"intermediate_size":32,"num_hidden_layers":1,"num_attention_heads":2,"max_position_embeddings":2147483647}`)
	most, near := strconv.Itoa(1<<63-1), strconv.Itoa(1<<62+1)
	for _, c := range []struct{ args, want string }{
		{"estimate --config " + wide, "too large"},
		{"estimate --config " + all + " --batch 16777216", "too large"},
		{"estimate --config " + positions, "too large"},
		{"activations --config " + wide, "too large"},
		{"train --device meta --config " + all, "too large"},
		{"estimate --config " + long + " --seq 2147483647 --batch 16777216", "2^56"},
		{"train --device meta --config " + long + " --seq 2147483647 --batch 16777216 --accumulate 1048576", "2^63"},
		{"estimate --preset gpt2 --batch " + most, "--batch"},
		{"estimate --preset gpt2 --accumulate " + most, "--accumulate"},
		{"estimate --preset gpt2 --steps " + most, "--steps"},
		{"estimate --preset gpt2 --seq " + most, "--seq"},
		{"estimate --preset gpt2 --width " + most, "--width"},
		{"estimate --preset gpt2 --heads " + near, "--heads"},
		{"estimate --preset tinyllama-1.1b --heads " + near, "--heads"},
		{"estimate --preset gpt2 --layers " + most, "--layers"},
		{"estimate --preset gpt2 --limit-gib 1e300", "--limit-gib"},
		{"estimate --preset gpt2 --limit-gib 8589934592", "--limit-gib"},
		{"estimate --preset gpt2 --limit-gib NaN", "--limit-gib"},
		{"estimate --preset gpt2 --alloc-conf max_split_size_mb:" + near, "max_split_size_mb"},
		{"estimate --parameters " + most, "2^63"},
		{"estimate --parameters " + most + " --bits 1 --reserve-gib 8589934592", "--reserve-gib"},
		{"estimate --kv-layers " + near + " --kv-heads 2 --head-dim 2 --tokens 2", "2^63"},
		{"estimate --kv-layers 1 --kv-heads 1 --head-dim 8 --tokens " + strconv.Itoa(1<<50) + " --sequences " + strconv.Itoa(1<<40), "--sequences"},
		{"train --device meta --preset gpt-char --warmup " + most, "warm-up"},
		{"train --device meta --preset gpt-char --warmup " + near, "warm-up"},
		{"train --device meta --preset gpt-char --steps " + most, "steps"},
		{"train --device meta --preset gpt-char --batch " + most, "batch"},
		{"train --device meta --preset gpt-char --accumulate " + most, "accumulate"},
		{"train --device meta --preset gpt-char --workers " + most, "--workers"},
		{"train --device meta --preset gpt-char --workspace-bytes " + most, "--workspace-bytes"},
		{"run accumulation --device meta --effective " + most, "--effective"},
		{"run linear --device meta --workspace-bytes " + most, "--workspace-bytes"},
	} {
		began := time.Now()
		code, out, errs := tidemark(t, strings.Fields(c.args)...)
		if code != shell.ExitError || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: status %d, %q, %q, want %q", c.args, code, out, errs, c.want)
		}
		if d := time.Since(began); d > 3*time.Second {
			t.Errorf("%s: refused after %v", c.args, d)
		}
	}
}
