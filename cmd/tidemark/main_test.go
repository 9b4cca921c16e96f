package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/instrument/report"
)

// tidemark runs the program in a folder of its own.
func tidemark(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(context.Background(), append([]string{"tidemark"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// inFolder makes a new folder the working folder.
func inFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	return dir
}

type badCase struct {
	args string
	code int
	want string // in the one line
}

// badInput are command lines that cannot be right; short is a file of too little
// text, bert a config of a family that is not known.
func badInput(dir, short, bert string) []badCase {
	return []badCase{
		{"bogus", 1, `unknown command "bogus"`},
		{"run", 1, "name a scenario"},
		{"run nope", 1, `unknown scenario "nope"`},
		{"run linear --device tpu", 1, `unknown device "tpu"`},
		{"run linear --device cuda:x", 1, "after cuda: comes the number of a GPU"},
		{"run linear --scale 0", 1, "--scale 0"},
		{"run linear --scale -1", 1, "--scale -1"},
		{"run linear --scale 1e300", 1, "--scale 1e+300"},
		{"run linear --scale x", 1, "-scale"},
		{"run linear --grad maybe", 1, `--grad "maybe"`},
		{"run linear --workspace-bytes -5", 1, "--workspace-bytes -5"},
		{"run linear --alloc-conf foo:1", 1, "--alloc-conf"},
		{"run linear --limit-bytes -1", 1, "--limit-bytes"},
		{"run linear --nope", 1, "-nope"},
		{"run linear again", 1, "again"},
		{"train", 1, "--preset"},
		{"train --preset nope", 1, `unknown preset "nope"`},
		{"train --preset gpt2 --config x", 1, "give one of them"},
		{"train --config " + bert, 1, `model_type "t5" is not known`},
		{"train --config " + dir + "/none.json", 1, "none.json"},
		{"train --preset gpt-char --heads 7", 1, "n_head 7 does not divide"},
		{"train --preset gpt-char --layers 100000000", 1, "n_layer is 100000000"},
		{"train --preset gpt-char --steps 0", 1, "steps 0"},
		{"train --preset gpt-char --batch -3", 1, "batch -3"},
		{"train --preset gpt-char --accumulate 0", 1, "accumulate 0"},
		{"train --preset gpt-char --seq 300", 1, "--seq 300"},
		{"train --preset gpt-char --lr NaN", 1, "learning rate"},
		{"train --preset gpt-char --optimizer nope", 1, "--optimizer"},
		{"train --preset gpt-char --schedule nope", 1, "nope"},
		{"train --preset gpt-char --dropout 1.5", 1, "dropout 1.5"},
		{"train --preset gpt-char --dtype int8", 1, `dtype "int8"`},
		{"train --preset gpt-char --loss nope", 1, `loss "nope"`},
		{"train --preset mlp-digits --optimizer sgd --beta1 0.5", 1, "--beta1"},
		{"train --preset mlp-digits --min-lr 0.5", 1, "--min-lr"},
		{"train --preset mlp-digits --dropout 0.5", 1, "has no dropout"},
		{"train --preset gpt-char --bytes-as-tokens", 1, "--data"},
		{"train --preset gpt-char --workers 1000000", 1, "--workers 1000000"},
		{"train --preset gpt-char --workspace-bytes -1", 1, "--workspace-bytes -1"},
		{"train --preset gpt-char --save-every 2", 1, "--save"},
		{"train --preset gpt-char --device cpu --save " + short, 1, "short.txt"},
		{"train --preset gpt-char --device meta --out " + short + "/x", 1, "short.txt"},
		{"run linear --device meta --out " + short + "/x", 1, "short.txt"},
		{"run linear --scale 1e-9", 1, "--scale"},
		{"train --preset gpt-char --data " + short, 1, "short.txt"},
		{"train --preset gpt-char --data none.txt", 1, "none.txt"},
		{"train --preset gpt-char --save " + dir + " --device meta", 1, "--save"},
		{"train --preset mlp-digits --seq 5", 1, "--seq"},
		{"train --resume " + dir + " --device cpu", 1, "no saved training"},
		{"generate", 1, "--from"},
		{"generate --from " + dir, 1, "no saved training"},
		{"eval --from " + dir, 1, "no saved training"},
		{"snapshot stat none.pickle", 1, "none.pickle"},
		{"snapshot stat " + short, 1, "short.txt"},
	}
}

func TestBadInputIsOneLine(t *testing.T) {
	dir := inFolder(t)
	short := filepath.Join(dir, "short.txt")
	if err := os.WriteFile(short, []byte("too short"), 0o666); err != nil {
		t.Fatal(err)
	}
	bert := filepath.Join(dir, "bert.json")
	if err := os.WriteFile(bert, []byte(`{"model_type":"t5"}`), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range badInput(dir, short, bert) {
		code, out, errs := tidemark(t, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "tidemark: ") {
			t.Errorf("%s: status %d, %q; want status %d and one line with %q", c.args, code, errs, c.code, c.want)
		}
		if out != "" {
			t.Errorf("%s: results were printed: %.80q", c.args, out)
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, resultsFolder)); err == nil {
		t.Errorf("bad input left %v behind", left)
	}
}

func TestLinearWritesItsFilesOnce(t *testing.T) {
	dir := filepath.Join(inFolder(t), "out")
	args := []string{"run", "linear", "--device", "meta", "--out", dir}
	code, out, errs := tidemark(t, args...)
	if code != 0 || !strings.HasPrefix(out, "device: meta\n") {
		t.Fatalf("status %d, %s", code, errs)
	}
	for _, name := range []string{"report.json", "snapshot.pickle", "timeline.svg", "timeline.png"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	before, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	code, _, errs = tidemark(t, append(args, "--scale", "0.5")...)
	after, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	if code != 1 || !strings.Contains(errs, "--force") || !bytes.Equal(before, after) {
		t.Errorf("a second run into the folder: status %d, %q", code, errs)
	}
	if err := os.Remove(filepath.Join(dir, "report.json")); err != nil {
		t.Fatal(err)
	}
	if code, _, errs = tidemark(t, args...); code != 1 || !strings.Contains(errs, "snapshot.pickle") || shell.Exists(filepath.Join(dir, "report.json")) {
		t.Errorf("a run into what another left: status %d, %q", code, errs)
	}
	if code, _, errs = tidemark(t, append(args, "--force", "--json")...); code != 0 {
		t.Errorf("with --force: status %d, %s", code, errs)
	}
}

func TestJSONIsTheReport(t *testing.T) {
	dir := filepath.Join(inFolder(t), "out")
	code, out, errs := tidemark(t, "run", "linear", "--json", "--grad", "on", "--out", dir)
	if code != 0 {
		t.Fatal(errs)
	}
	var r report.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Runs) != 1 || r.Runs[0].Name != "linear_grad" || r.Device.Kind != "meta" || len(r.Checks) == 0 {
		t.Errorf("report %+v", r)
	}
	file, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil || string(file) != out {
		t.Errorf("the file differs from what --json prints: %v", err)
	}
}

func TestUnnamedRunsGetFoldersOfTheirOwn(t *testing.T) {
	dir := inFolder(t)
	for range 2 {
		if code, _, errs := tidemark(t, "run", "linear", "--scale", "0.01"); code != 0 {
			t.Fatal(errs)
		}
	}
	for _, name := range []string{"linear-001", "linear-002"} {
		if !shell.Exists(filepath.Join(dir, resultsFolder, name, "report.json")) {
			t.Errorf("no %s", name)
		}
	}
}

func TestOutOfMemoryKeepsTheReport(t *testing.T) {
	dir := filepath.Join(inFolder(t), "out")
	code, _, errs := tidemark(t, "run", "linear", "--device", "meta", "--limit-bytes", "3000000000", "--out", dir)
	if code != 1 || !strings.Contains(errs, "out of memory") || strings.Count(errs, "\n") != 1 {
		t.Errorf("status %d, %q", code, errs)
	}
	for _, name := range []string{"report.json", "snapshot.pickle", "timeline.png"} {
		if !shell.Exists(filepath.Join(dir, name)) {
			t.Errorf("no %s", name)
		}
	}
}

func TestTrainGenerateEval(t *testing.T) {
	dir := inFolder(t)
	text := filepath.Join(dir, "text.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("all work and no play makes a dull boy. ", 100)), 0o666); err != nil {
		t.Fatal(err)
	}
	args := strings.Fields("train --preset gpt-char --layers 1 --width 32 --heads 2 --seq 16 --batch 8 --device cpu --lr 1e-2 --eval-every 20 --data " + text)
	code, out, errs := tidemark(t, append(args, "--steps", "20", "--save", "run")...)
	if code != 0 || !strings.Contains(out, "saved in run") || !strings.Contains(out, "held out: loss") {
		t.Fatalf("status %d\n%s\n%s", code, out, errs)
	}
	if code, _, errs = tidemark(t, append(args, "--steps", "20", "--save", "run")...); code != 1 || !strings.Contains(errs, "--resume") {
		t.Errorf("training over a save: status %d, %s", code, errs)
	}
	for _, c := range []struct{ args, want string }{
		{"train --resume run", "20 steps are done"},
		{"train --resume run --steps 20", "20 steps are done"},
		{"train --resume run --steps 40 --lr 3", "leave --lr out"},
		{"train --resume run --steps 40 --layers 3", "leave --layers out"},
		{"train --resume run/step-00000020 --steps 40", "one save of a training"},
	} {
		if code, _, errs := tidemark(t, strings.Fields(c.args)...); code != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: status %d, %q; want 1 and %q", c.args, code, errs, c.want)
		}
	}
	if code, out, errs = tidemark(t, "generate", "--from", "run", "--prompt", ""); code != 1 || out != "" {
		t.Errorf("an empty prompt: status %d, %q, %q", code, out, errs)
	}
	// Where there is no GPU, auto is the CPU for a training that is to be saved.
	if code, out, errs = tidemark(t, "train", "--resume", "run", "--steps", "40"); code != 0 || !strings.Contains(out, "continuing after step 20") {
		t.Errorf("resume: status %d, %s", code, errs)
	}
	// The text may move, but not change.
	moved := filepath.Join(dir, "moved.txt")
	if err := os.Rename(text, moved); err != nil {
		t.Fatal(err)
	}
	if code, _, errs = tidemark(t, "train", "--resume", "run", "--steps", "42"); code != 1 || !strings.Contains(errs, "text.txt") {
		t.Errorf("resume without the text: status %d, %s", code, errs)
	}
	if code, _, errs = tidemark(t, "train", "--resume", "run", "--steps", "42", "--data", moved); code != 0 {
		t.Errorf("resume with the text elsewhere: status %d, %s", code, errs)
	}
	if err := os.WriteFile(moved, []byte(strings.Repeat("a dull boy makes all work and no play. ", 100)), 0o666); err != nil {
		t.Fatal(err)
	}
	if code, _, errs = tidemark(t, "train", "--resume", "run", "--steps", "44"); code != 1 || !strings.Contains(errs, "checksum") {
		t.Errorf("resume with another text: status %d, %s", code, errs)
	}
	if code, _, errs = tidemark(t, "eval", "--from", "run", "--data", moved); code != 0 {
		t.Errorf("eval on another text: status %d, %s", code, errs)
	}
	code, out, errs = tidemark(t, "generate", "--from", "run", "--prompt", "all work", "--tokens", "12", "--temperature", "0")
	if code != 0 || !strings.HasPrefix(out, "all work") || len(out) != len("all work")+12+1 {
		t.Errorf("generate: status %d, %q, %s", code, out, errs)
	}
	code, out, errs = tidemark(t, "eval", "--from", "run", "--data", moved, "--json")
	if code != 0 || !strings.Contains(out, `"accuracy"`) {
		t.Errorf("eval: status %d, %q, %s", code, out, errs)
	}
	code, _, errs = tidemark(t, "generate", "--from", "run", "--prompt", "ALL")
	if code != 1 || !strings.Contains(errs, "'A'") {
		t.Errorf("a prompt outside the vocabulary: status %d, %s", code, errs)
	}
}

func TestNoGPUIsStatusTwo(t *testing.T) {
	inFolder(t)
	code, _, errs := tidemark(t, "run", "linear", "--device", "cuda:7")
	if code != 2 || strings.Count(errs, "\n") != 1 {
		t.Errorf("status %d, %q", code, errs)
	}
}
