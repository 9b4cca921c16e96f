package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
)

// TestFoldersAreTakenOnce has many runs without --out begin at once.
func TestFoldersAreTakenOnce(t *testing.T) {
	inFolder(t)
	const n = 30
	var wait sync.WaitGroup
	paths := make([]string, n)
	for i := range n {
		wait.Go(func() {
			f, err := takeFolder("", "train", false)
			if err != nil {
				t.Error(err)
				return
			}
			paths[i] = f.path
		})
	}
	wait.Wait()
	slices.Sort(paths)
	if got := len(slices.Compact(paths)); got != n {
		t.Errorf("%d runs have %d folders", n, got)
	}
	first, err := takeFolder("named", "train", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := takeFolder("named", "train", true); err == nil || !strings.Contains(err.Error(), "another process writes there") {
		t.Errorf("a folder that is taken: %v", err)
	}
	first.close()
	if shell.Exists("named") {
		t.Error("a folder that was made for nothing is left")
	}
}

// TestForceLeavesNoOtherFiles replaces a report by that of another scenario.
func TestForceLeavesNoOtherFiles(t *testing.T) {
	dir := filepath.Join(inFolder(t), "out")
	if code, _, errs := tidemark(t, "run", "activations", "--out", dir); code != 0 {
		t.Fatal(errs)
	}
	for _, name := range []string{"thesis.png", ".report.json.0123abcd"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if !shell.Exists(filepath.Join(dir, "activations.svg")) {
		t.Fatal("the scenario has no picture of its own: choose another for this test")
	}
	if code, _, errs := tidemark(t, "run", "linear", "--device", "meta", "--out", dir, "--force"); code != 0 {
		t.Fatal(errs)
	}
	for name, want := range map[string]bool{"activations.svg": false, "activations.png": false, ".report.json.0123abcd": false,
		"thesis.png": true, "report.json": true, "timeline.png": true, ".report.lock": false} {
		if got := shell.Exists(filepath.Join(dir, name)); got != want {
			t.Errorf("%s is there: %v, want %v", name, got, want)
		}
	}
}

// TestUnwritableFoldersAreFoundFirst names folders below a file.
func TestUnwritableFoldersAreFoundFirst(t *testing.T) {
	dir := inFolder(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"run --all --device cpu --out ", "run checkpointing --device cpu --out ", "activations --preset gpt2 --out ",
		"train --preset gpt2 --device cpu --out ", "train --preset gpt2 --device cpu --save "} {
		code, out, errs := tidemark(t, append(strings.Fields(args), filepath.Join(file, "x"))...)
		if code != 1 || out != "" || !strings.Contains(errs, "not a directory") || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: status %d, %q, %q", args, code, out, errs)
		}
	}
	if shell.Exists(filepath.Join(dir, resultsFolder)) {
		t.Error("a folder for results is left behind")
	}
}

// TestGenerateDrawsTheTextsTokens trains a model of more tokens than its text
// has, for so short that it prefers none.
func TestGenerateDrawsTheTextsTokens(t *testing.T) {
	dir := inFolder(t)
	write := func(name, content string) {
		if err := os.WriteFile(name, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("text.txt", strings.Repeat("abc ", 200))
	write("config.json", `{"model_type":"gpt","vocab_size":500,"n_ctx":32,"n_layer":1,"n_embd":16,"n_head":2}`)
	if code, _, errs := tidemark(t, strings.Fields("train --config config.json --data text.txt --seq 16 --device cpu --steps 1 --eval-every 0 --save save --out out")...); code != 0 {
		t.Fatal(errs)
	}
	code, out, errs := tidemark(t, "generate", "--from", "save", "--prompt", "abc", "--tokens", "60", "--temperature", "1", "--json")
	if code != 0 || !strings.Contains(out, `"window_tokens":16`) || !strings.Contains(errs, "latest 16 tokens") || !strings.Contains(errs, "its context is 32") {
		t.Errorf("status %d, %s, %s", code, out, errs)
	}
	if code, out, errs = tidemark(t, "generate", "--from", "save", "--prompt", "abc", "--seq", "32", "--json"); code != 0 || !strings.Contains(out, `"window_tokens":32`) || errs != "" {
		t.Errorf("status %d, %s, %s", code, out, errs)
	}
	if code, _, errs = tidemark(t, "generate", "--from", "save", "--prompt", "abc", "--seq", "33"); code != 1 || !strings.Contains(errs, "--seq 33") {
		t.Errorf("status %d, %s", code, errs)
	}
	// Weights that are no numbers are refused by whoever reads them.
	saves, err := filepath.Glob(filepath.Join(dir, "save", "step-*", "model.safetensors"))
	if err != nil || len(saves) != 1 {
		t.Fatal(saves, err)
	}
	b, err := os.ReadFile(saves[0])
	if err != nil {
		t.Fatal(err)
	}
	copy(b[len(b)-4:], "\x00\x00\xc0\x7f")
	if err := os.WriteFile(saves[0], b, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"eval --from save", "generate --from save", "train --resume save --steps 2 --device cpu"} {
		if code, out, errs := tidemark(t, strings.Fields(args)...); code != 1 || out != "" || !strings.Contains(errs, "is NaN") || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: status %d, %q, %q", args, code, out, errs)
		}
	}
}
