package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
)

// TestAdapters are estimated, trained over a model on disk, saved without it, gone
// on with, drawn from nothing else, and merged.
func TestAdapters(t *testing.T) {
	inFolder(t)
	config := writeConfig(t, "c", tinyLlama+"}")
	ok := func(command string) string {
		t.Helper()
		code, out, errs := tidemark(t, strings.Fields(command)...)
		if code != shell.ExitDone {
			t.Fatalf("%s: status %d, %s", command, code, errs)
		}
		return out
	}
	if out := ok("estimate --config " + config + " --seq 8 --lora-rank 4 --lora-targets q_proj,v_proj"); !strings.Contains(out, "parameters train (") {
		t.Errorf("estimate does not say how much is trained: %s", out)
	}
	ok("train --config " + config + " --device cpu --seq 8 --steps 2 --batch 2 --save base --out a")
	ok("train --from base --device cpu --seq 8 --steps 2 --batch 2 --lora-rank 4 --save adapters --out b")
	ok("train --resume adapters --device cpu --steps 3 --out c")
	var peft struct {
		Base string `json:"base_model_name_or_path"`
		Rank int    `json:"r"`
	}
	b, err := os.ReadFile(filepath.Join("adapters", "step-00000003", "adapter_config.json"))
	if err == nil {
		err = json.Unmarshal(b, &peft)
	}
	if err != nil || peft.Rank != 4 || filepath.Base(peft.Base) != "step-00000002" {
		t.Errorf("adapter_config.json: %v, %s", err, b)
	}
	if out := ok("merge --from adapters --out merged"); !strings.HasPrefix(out, "14 layers merged") {
		t.Errorf("merge says %q", out)
	}
	ok("estimate --from merged --seq 8")
	for command, want := range map[string]string{
		"merge --from adapters --out merged":                                    "exists",
		"merge --from base --out other":                                         "has no adapters",
		"merge --from base":                                                     "--out",
		"estimate --config " + config + " --lora-rank 0":                        "rank 0",
		"estimate --config " + config + " --lora-alpha 4":                       "--lora-alpha",
		"estimate --config " + config + " --lora-rank 4 --lora-targets x_proj":  "called x_proj",
		"estimate --config " + config + " --lora-rank 4 --lora-targets lm_head": "cannot be adapted",
		"estimate --config " + config + " --freeze nothing":                     `"nothing"`,
		"estimate --config " + config + " --freeze *":                           "all parameters are frozen",
		"estimate --config " + config + " --freeze [":                           "no pattern",
	} {
		code, out, errs := tidemark(t, strings.Fields(command)...)
		if code != shell.ExitError || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, %q, %q; want one line with %q", command, code, out, errs, want)
		}
	}
	if _, err := os.Stat("other"); err == nil {
		t.Error("a refused merge left a folder")
	}
}
