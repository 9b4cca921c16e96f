package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
)

// writeConfig writes a config file and returns its path.
func writeConfig(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".json")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	tinyGPT2  = `{"model_type":"gpt2","vocab_size":331,"n_positions":96,"n_layer":2,"n_embd":80,"n_head":5`
	tinyLlama = `{"model_type":"llama","vocab_size":331,"hidden_size":96,"intermediate_size":272,"num_hidden_layers":2,"num_attention_heads":6`
)

// TestPrecisionOfTheConfig has estimate follow the config's dtype where
// --precision is not given, and say so.
func TestPrecisionOfTheConfig(t *testing.T) {
	for _, c := range []struct{ keys, flags, precision, from string }{
		{``, "", "fp32", "default"},
		{`,"torch_dtype":"bfloat16"`, "", "bf16", "config (torch_dtype)"},
		{`,"dtype":"bfloat16"`, "", "bf16", "config (dtype)"},
		{`,"dtype":"float32"`, "", "fp32", "config (dtype)"},
		{`,"torch_dtype":"torch.float16"`, "", "bf16", "config (torch_dtype float16, of bfloat16's sizes)"},
		{`,"dtype":"bfloat16"`, "--precision fp32", "fp32", "flag"},
		{`,"dtype":"float64"`, "--precision bf16-mixed", "bf16-mixed", "flag"},
		{`,"dtype":"bfloat16"`, "--composition fused", "fp32", "default (the fused composition keeps parameters in float32, whatever dtype says)"},
	} {
		args := append([]string{"estimate", "--config", writeConfig(t, "c", tinyLlama+c.keys+"}"), "--seq", "8", "--card", "h200"}, strings.Fields(c.flags)...)
		code, out, errs := tidemark(t, append(args, "--json")...)
		if code != shell.ExitDone {
			t.Fatal(c, errs)
		}
		var v struct {
			Settings struct {
				Precision, Attention string
				Sources              map[string]string
			}
		}
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Fatal(err)
		}
		if s := v.Settings; s.Precision != c.precision || s.Sources["precision"] != c.from || s.Attention != "sdpa" {
			t.Errorf("%s %s: %+v", c.keys, c.flags, s)
		}
		if _, out, _ := tidemark(t, args...); !strings.Contains(strings.Join(strings.Fields(out), " "), "assumed: precision "+c.precision+": source: "+c.from) {
			t.Errorf("%s %s: the precision is not said in\n%s", c.keys, c.flags, out)
		}
	}
	code, _, errs := tidemark(t, "estimate", "--config", writeConfig(t, "c", tinyLlama+`,"dtype":"float64"}`), "--seq", "8")
	if code != shell.ExitError || !strings.Contains(errs, "dtype is float64: give --precision") {
		t.Errorf("float64: status %d, %q", code, errs)
	}
}

// TestDropoutFlag holds the commands to one meaning of --dropout.
func TestDropoutFlag(t *testing.T) {
	inFolder(t)
	gpt2, llama := writeConfig(t, "gpt2", tinyGPT2+"}"), writeConfig(t, "llama", tinyLlama+"}")
	commands := [][]string{
		{"estimate", "--batch", "32", "--seq", "64", "--optimizer", "sgd", "--card", "h200", "--json"},
		{"activations", "--seq", "8", "--json"},
		{"train", "--device", "meta", "--batch", "32", "--seq", "64", "--optimizer", "sgd", "--steps", "1", "--force", "--json"},
	}
	for _, command := range commands {
		peak := map[string]string{}
		for _, p := range []string{"", "0", "0.1", "0.2"} {
			args := append(append([]string{}, command...), "--config", gpt2)
			if p != "" {
				args = append(args, "--dropout", p)
			}
			code, out, errs := tidemark(t, args...)
			if code != shell.ExitDone {
				t.Fatal(args, errs)
			}
			var v map[string]any
			if err := json.Unmarshal([]byte(out), &v); err != nil {
				t.Fatal(err)
			}
			delete(v, "settings")
			if runs, ok := v["runs"].([]any); ok { // of train
				run := runs[0].(map[string]any)
				v = map[string]any{"peak": run["peak"]}
			}
			if m, ok := v["peak"].(map[string]any); ok {
				v = map[string]any{"peak": m["allocated_bytes"]}
			}
			b, _ := json.Marshal(v)
			peak[p] = string(b)
		}
		if peak[""] != peak["0.1"] || peak[""] != peak["0.2"] || command[0] != "activations" && peak["0"] == peak[""] {
			t.Errorf("%s: --dropout 0, 0.1 and 0.2 and none give\n%s\n%s\n%s\n%s", command[0], peak["0"], peak["0.1"], peak["0.2"], peak[""])
		}
		for _, c := range []struct{ config, p, want string }{
			{llama, "0.2", "--dropout 0.2: a model of type llama has no dropout"},
			{gpt2, "1", "--dropout 1: it must be from 0"},
			{gpt2, "-0.5", "--dropout -0.5: it must be from 0"},
		} {
			code, out, errs := tidemark(t, append(append([]string{}, command...), "--config", c.config, "--dropout", c.p)...)
			if code != shell.ExitError || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, c.want) {
				t.Errorf("%s --dropout %s: status %d, %q", command[0], c.p, code, errs)
			}
		}
		if code, _, errs := tidemark(t, append(append([]string{}, command...), "--config", llama, "--dropout", "0")...); code != shell.ExitDone {
			t.Errorf("%s --dropout 0 of a llama: %s", command[0], errs)
		}
	}
}

// TestScaledRotaryPositions are of no consequence to memory; those whose values
// are not known are not trained.
func TestScaledRotaryPositions(t *testing.T) {
	inFolder(t)
	const scaling = `,"rope_scaling":{"rope_type":"longrope","factor":8.0,"original_max_position_embeddings":8192}`
	plain, scaled := writeConfig(t, "plain", tinyLlama+"}"), writeConfig(t, "scaled", tinyLlama+scaling+"}")
	for _, command := range []string{"estimate", "activations"} {
		var outs [2]string
		for i, path := range []string{plain, scaled} {
			code, out, errs := tidemark(t, command, "--config", path, "--seq", "8")
			if code != shell.ExitDone {
				t.Fatal(command, errs)
			}
			outs[i] = strings.NewReplacer("plain", "", "scaled", "").Replace(out)
		}
		if outs[0] != outs[1] {
			t.Errorf("%s differs with a scaling:\n%s\n%s", command, outs[0], outs[1])
		}
	}
	code, out, errs := tidemark(t, "train", "--config", scaled, "--device", "meta", "--seq", "8")
	if code != shell.ExitError || out != "" || !strings.Contains(errs, `rotary positions of type "longrope" are not computed`) || strings.Count(errs, "\n") != 1 {
		t.Errorf("train: status %d, %q %q", code, out, errs)
	}
}

// TestEncoders are predicted and trained with a label a row, and refused in one line for what
// is not there.
func TestEncoders(t *testing.T) {
	inFolder(t)
	config := writeConfig(t, "bert", `{"model_type":"bert","vocab_size":331,"hidden_size":96,"intermediate_size":272,"num_hidden_layers":2,"num_attention_heads":6}`)
	code, out, errs := tidemark(t, "estimate", "--config", config, "--batch", "4", "--seq", "32")
	if code != shell.ExitDone || !strings.Contains(out, "The training peaks at") {
		t.Errorf("status %d, %q %s", code, out, errs)
	}
	code, out, errs = tidemark(t, "train", "--config", config, "--batch", "4", "--seq", "16", "--steps", "3", "--device", "cpu")
	if code != shell.ExitDone || !strings.Contains(out, "loss 0.") {
		t.Errorf("trained: status %d, %q %s", code, out, errs)
	}
	for command, want := range map[string]string{
		"estimate --prompt-tokens 4 --new-tokens 4": "generates nothing",
		"train --data " + config:                    "a text has no such labels",
		"estimate --recipe hf-trainer --seq 32":     "by their own loss",
		"estimate --seq 513":                        "context is 512",
	} {
		args := strings.Fields(command)
		code, out, errs := tidemark(t, append(args, "--config", config)...)
		if code != shell.ExitError || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, %q, %q; want one line with %q", command, code, out, errs, want)
		}
	}
}

// TestAttentionDropoutIsTrained: the losses are others than without.
func TestAttentionDropoutIsTrained(t *testing.T) {
	inFolder(t)
	for _, configs := range [][2]string{
		{tinyGPT2 + `,"embd_pdrop":0,"resid_pdrop":0,"attn_pdrop":0}`, tinyGPT2 + `,"embd_pdrop":0,"resid_pdrop":0,"attn_pdrop":0.5}`},
		{tinyLlama + "}", tinyLlama + `,"attention_dropout":0.5}`},
	} {
		var losses [2]string
		for i, config := range configs {
			code, out, errs := tidemark(t, "train", "--config", writeConfig(t, "c", config), "--device", "cpu", "--seq", "8", "--steps", "2", "--json", "--force")
			if code != shell.ExitDone {
				t.Fatalf("status %d: %s", code, errs)
			}
			var r struct {
				Runs []struct {
					Steps []struct{ Loss float64 }
				}
			}
			if err := json.Unmarshal([]byte(out), &r); err != nil {
				t.Fatal(err)
			}
			losses[i] = fmt.Sprint(r.Runs[0].Steps)
		}
		if losses[0] == losses[1] {
			t.Errorf("%s: losses %s with and without dropout of the attention's weights", configs[1], losses[0])
		}
	}
}

// TestHeadsOfNoWholeVectors are predicted in float32, refused in bfloat16, and
// given no remedy that is refused.
func TestHeadsOfNoWholeVectors(t *testing.T) {
	for size, config := range map[int]string{
		17: `{"model_type":"gpt2","vocab_size":331,"n_positions":512,"n_layer":2,"n_embd":102,"n_head":6}`, // with a cache
		18: `{"model_type":"gemma3_text","vocab_size":331,"hidden_size":108,"intermediate_size":272,"num_hidden_layers":3,"num_attention_heads":6,
			"num_key_value_heads":2,"head_dim":18,"sliding_window":64,"sliding_window_pattern":3}`, // with a mask
	} {
		args := []string{"estimate", "--config", writeConfig(t, fmt.Sprint(size), config), "--batch", "8", "--seq", "256", "--limit-gib", "0.1", "--card", "h200"}
		code, out, errs := tidemark(t, args...)
		if code != shell.ExitDone || !strings.Contains(out, "does not fit") || strings.Contains(out, "--precision") {
			t.Errorf("status %d, %q\n%s", code, errs, out)
		}
		for _, p := range []string{"bf16", "bf16-mixed"} {
			code, out, errs := tidemark(t, append(args, "--precision", p)...)
			if code != shell.ExitError || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, fmt.Sprintf("heads of %d elements in bfloat16", size)) {
				t.Errorf("%s: status %d, %q", p, code, errs)
			}
		}
	}
}
