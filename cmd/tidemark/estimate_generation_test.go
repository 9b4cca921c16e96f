package main

import (
	"encoding/json"
	"strings"
	"testing"
)

const generating = "estimate --preset qwen2.5-0.5b --prompt-tokens 64 --new-tokens 40 "

func TestEstimateOfGenerating(t *testing.T) {
	code, out, errs := tidemark(t, strings.Fields(generating+"--batch 1024 --precision fp32 --card 4060 --json")...)
	var e struct {
		Settings struct {
			PromptTokens int `json:"prompt_tokens"`
			NewTokens    int `json:"new_tokens"`
			Cache        string
		}
		Phases         []struct{ Phase string }
		WeightBytes    int64 `json:"weight_bytes"`
		CacheBytes     int64 `json:"cache_bytes"`
		WorkspaceBytes int64 `json:"workspace_bytes"`
		Parameters     int64
		Peak           struct {
			Allocated int64            `json:"allocated_bytes"`
			By        map[string]int64 `json:"by_category"`
		}
		Cards []struct {
			Fits     bool
			Remedies []struct {
				Change    string
				PeakBytes int64 `json:"peak_bytes"`
			}
			UsableBytes int64 `json:"usable_bytes"`
		}
	}
	if err := json.Unmarshal([]byte(out), &e); code != 0 || err != nil {
		t.Fatalf("status %d, %v, %s", code, err, errs)
	}
	if e.Settings.PromptTokens != 64 || e.Settings.NewTokens != 40 || e.Settings.Cache != "dynamic" || len(e.Phases) != 3 || e.Phases[2].Phase != "decode" {
		t.Errorf("%+v", e)
	}
	// 2 · layers · key/value heads · head size · tokens · bytes · rows
	if want := int64(2 * 24 * 2 * 64 * (64 + 40 - 1) * 4 * 1024); e.CacheBytes != want || e.WeightBytes != 4*e.Parameters || e.WorkspaceBytes != 33<<20 {
		t.Errorf("cache %d, expected %d; weights %d of %d parameters; workspaces %d", e.CacheBytes, want, e.WeightBytes, e.Parameters, e.WorkspaceBytes)
	}
	v := e.Cards[0]
	if v.Fits || len(v.Remedies) < 2 {
		t.Fatalf("%+v", v)
	}
	for _, r := range v.Remedies { // what is advised does
		code, out, _ := tidemark(t, append(strings.Fields(generating+"--batch 1024 --precision fp32 --card 4060"), strings.Fields(r.Change)...)...)
		if code != 0 || !strings.Contains(out, "RTX 4060 8 GB: fits") || r.PeakBytes > v.UsableBytes {
			t.Errorf("%s: status %d, %s", r.Change, code, out)
		}
	}
	code, out, errs = tidemark(t, strings.Fields(generating+"--batch 2 --composition fused --cache sliding --seq 50")...)
	if code != 0 || !strings.HasPrefix(out, "Generating 40 tokens after 64, in 2 rows, peaks at ") || !strings.Contains(out, "the sliding cache of keys and values 2.3 MiB at its end") {
		t.Errorf("status %d, %s, %s", code, out, errs)
	}
	code, out, _ = tidemark(t, strings.Fields(generating+"--limit-gib 1 --precision fp32")...)
	if code != 0 || !strings.Contains(out, "--limit-gib: does not fit") {
		t.Errorf("a limit: status %d, %s", code, out)
	}
}

func TestEstimateOfGeneratingRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"estimate --preset qwen2.5-0.5b --prompt-tokens 64":                    "takes both --prompt-tokens and --new-tokens",
		"estimate --preset qwen2.5-0.5b --cache static":                        "takes both",
		generating + "--optimizer sgd":                                         "--optimizer is of a training",
		generating + "--seq 100":                                               "--seq is the window of --cache sliding",
		generating + "--cache ring":                                            `--cache "ring": there is none, dynamic`,
		generating + "--cache static":                                          "tidemark's own kernels",
		"estimate --preset qwen2.5-0.5b --prompt-tokens 64 --new-tokens 99999": "more than the model's context",
		"estimate --parameters 5 --prompt-tokens 64":                           "--prompt-tokens is of",
	} {
		code, out, errs := tidemark(t, strings.Fields(args)...)
		if code != 1 || out != "" || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: status %d, %q, %s; want %q", args, code, out, errs, want)
		}
	}
}
