package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every cache gives the same text, several prompts at once too; on meta, the
// memory that it takes.
func TestGenerateCommand(t *testing.T) {
	dir := inFolder(t)
	text := filepath.Join(dir, "text.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("all work, and no play. ", 100)), 0o666); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := tidemark(t, strings.Fields("train --preset gpt-char --layers 2 --width 32 --heads 2 --seq 32 --batch 8 --device cpu --lr 1e-2 --steps 20 --save run --data "+text)...); code != 0 {
		t.Fatal(errs)
	}
	type doc struct {
		Text       *string
		Rows       []struct{ Prompt, Text string }
		Cache      string
		CacheBytes int64 `json:"cache_bytes"`
		Peak       struct {
			Allocated int64            `json:"allocated_bytes"`
			Phase     string           `json:"phase"`
			By        map[string]int64 `json:"by_category"`
		}
	}
	generate := func(args ...string) doc {
		t.Helper()
		code, out, errs := tidemark(t, append(strings.Fields("generate --from run --tokens 20 --json"), args...)...)
		var d doc
		if code != 0 || json.Unmarshal([]byte(out), &d) != nil {
			t.Fatalf("%v: status %d, %s, %s", args, code, out, errs)
		}
		return d
	}
	prompts := []string{"--prompt", "all, ", "--prompt", "work"}
	want := generate(append(prompts, "--cache", "none")...)
	if want.CacheBytes != 0 || want.Cache != "none" || len(want.Rows) != 2 || want.Rows[0].Prompt != "all, " || *want.Text != want.Rows[0].Text {
		t.Errorf("%+v", want)
	}
	for _, kind := range []string{"", "dynamic", "static", "sliding"} {
		args := slices.Clone(prompts)
		if kind != "" {
			args = append(args, "--cache", kind)
		}
		got := generate(args...)
		if !slices.Equal(got.Rows, want.Rows) {
			t.Errorf("--cache %q: %+v, without a cache %+v", kind, got.Rows, want.Rows)
		}
		// 2 · layers · width · tokens · bytes · rows, each tensor in a block.
		if bytes := int64(2 * 2 * 32 * 24 * 4 * 2); got.CacheBytes != bytes {
			t.Errorf("--cache %q takes %d bytes, expected %d", kind, got.CacheBytes, bytes)
		}
		meta := generate(append(args, "--device", "meta")...)
		if meta.Text != nil || meta.CacheBytes != got.CacheBytes || meta.Peak.Allocated != got.Peak.Allocated || meta.Peak.Phase != got.Peak.Phase {
			t.Errorf("--cache %q: on meta %+v, on the cpu %+v", kind, meta, got)
		}
	}
	code, out, errs := tidemark(t, strings.Fields("generate --from run --tokens 5 --device meta --prompt all")...)
	if code != 0 || !strings.HasPrefix(out, "Memory peaks at ") || !strings.Contains(out, "The dynamic cache takes ") {
		t.Errorf("on meta: status %d, %q, %s", code, out, errs)
	}
	code, out, errs = tidemark(t, append(strings.Fields("generate --from run --tokens 5 --temperature 0"), prompts...)...)
	if lines := strings.Split(out, "\n"); code != 0 || len(lines) != 4 || !strings.HasPrefix(lines[0], "all, ") || lines[1] != "" || !strings.HasPrefix(lines[2], "work") {
		t.Errorf("two prompts: status %d, %q, %s", code, out, errs)
	}
	for _, c := range []struct{ args, want string }{
		{"--cache ring", `--cache "ring": there is none, dynamic, static, sliding`},
		{"--cache static --tokens 40", "more than the 32 that the model sees"},
	} {
		code, out, errs := tidemark(t, append(strings.Fields("generate --from run --prompt all"), strings.Fields(c.args)...)...)
		if code != 1 || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("%s: status %d, %q, %s", c.args, code, out, errs)
		}
	}
}
