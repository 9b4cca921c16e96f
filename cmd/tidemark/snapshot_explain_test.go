package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
)

// recordedSnapshot is a real recording by its name.
func recordedSnapshot(name string) string {
	return filepath.Join("..", "..", "instrument", "explain", "testdata", name+".pickle.gz")
}

// The answer comes before any table, the short form is the same as the long
// one, and JSON has the shared names.
func TestSnapshotExplain(t *testing.T) {
	file := recordedSnapshot("bert_amp")
	code, out, stderr := tidemark(t, "snapshot", file)
	if code != 0 {
		t.Fatalf("status %d: %s", code, stderr)
	}
	if !strings.HasPrefix(out, "Allocated memory peaks at 1.067 GiB") {
		t.Errorf("it begins with %.100q", out)
	}
	for _, line := range strings.Split(out, "\n") {
		if n := len([]rune(line)); n > 100 {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
	if _, long, _ := tidemark(t, "snapshot", "explain", file); long != out {
		t.Error("snapshot explain FILE and snapshot FILE differ")
	}
	code, out, _ = tidemark(t, "snapshot", file, "--json", "--top", "3")
	if code != 0 {
		t.Fatal(code)
	}
	var v map[string]any
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "device", "peak", "peak_reserved", "before", "phases", "steps", "findings", "oom"} {
		if _, ok := v[name]; !ok {
			t.Errorf("no %s in the JSON", name)
		}
	}
	peak := v["peak"].(map[string]any)
	if lines := peak["by_line"].([]any); len(lines) != 3 || peak["allocated_bytes"] != 1145438720.0 {
		t.Errorf("peak %v", peak)
	}
}

// --out leaves a page, report.json and pictures, and overwrites none.
func TestSnapshotExplainOut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "explained")
	code, _, stderr := tidemark(t, "snapshot", "explain", "--out", dir, recordedSnapshot("oom_batch"))
	if code != 0 {
		t.Fatalf("status %d: %s", code, stderr)
	}
	for name, want := range map[string]string{
		"report.html":  "ended out of memory",
		"report.json":  `"requested_bytes": 603979776`,
		"timeline.svg": "oom_batch.pickle.gz",
		"timeline.png": "PNG",
	} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s does not say %q, %v", name, want, err)
		}
	}
	if code, _, stderr = tidemark(t, "snapshot", "explain", "--out", dir, recordedSnapshot("oom_batch")); code != 1 || !strings.Contains(stderr, "already holds") {
		t.Errorf("a second time gives status %d, %s", code, stderr)
	}
}

func TestSnapshotExplainMistakes(t *testing.T) {
	file := recordedSnapshot("bert_amp")
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"--from", "-1"}, "--from -1"},
		{[]string{"--from", "2", "--to", "1"}, "--to must be after --from"},
		{[]string{"--from", "1000"}, "it lasts"},
		{[]string{"--device", "5"}, "no device 5"},
		{[]string{"--top", "-1"}, "--top -1"},
	} {
		code, _, stderr := tidemark(t, append([]string{"snapshot", "explain", file}, test.args...)...)
		if code != 1 || !strings.Contains(stderr, test.says) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: status %d, %q", test.args, code, stderr)
		}
	}
}

// Exports are written once, and never over what is there.
func TestSnapshotExplainExports(t *testing.T) {
	dir := t.TempDir()
	args := []string{"snapshot", recordedSnapshot("oom_batch"), "--csv", filepath.Join(dir, "csv"), "--folded", filepath.Join(dir, "peak.folded"),
		"--pprof", filepath.Join(dir, "peak.pb.gz")}
	if code, _, stderr := tidemark(t, args...); code != 0 || !strings.Contains(stderr, "wrote ") {
		t.Fatalf("status %d: %s", code, stderr)
	}
	for _, name := range []string{"csv/events.csv", "csv/blocks.csv", "csv/lines.csv", "csv/stacks.csv", "peak.folded", "peak.pb.gz"} {
		if !shell.Exists(filepath.Join(dir, name)) {
			t.Errorf("no %s", name)
		}
	}
	if code, _, stderr := tidemark(t, args...); code != 1 || !strings.Contains(stderr, "--force") {
		t.Errorf("again: status %d: %s", code, stderr)
	}
	if code, _, stderr := tidemark(t, append(args, "--force")...); code != 0 {
		t.Errorf("with --force: status %d: %s", code, stderr)
	}
}

func TestSnapshotDiffAndRanks(t *testing.T) {
	a, b := recordedSnapshot("train_smol"), recordedSnapshot("leak_logits")
	code, out, stderr := tidemark(t, "snapshot", "diff", a, b, "--top", "5")
	if code != 0 || !strings.Contains(out, "343.8 MiB less") && !strings.Contains(out, "MiB less than") || !strings.Contains(out, "train.py:31") {
		t.Errorf("status %d: %s%s", code, out, stderr)
	}
	if code, _, stderr = tidemark(t, "snapshot", "diff", a); code != 1 || !strings.Contains(stderr, "two snapshot files") {
		t.Errorf("status %d: %s", code, stderr)
	}
	if code, _, stderr = tidemark(t, "snapshot", "diff", a, b, "--at-b", "1000"); code != 1 || !strings.Contains(stderr, "--at-b") {
		t.Errorf("status %d: %s", code, stderr)
	}
	folder := filepath.Dir(a)
	code, out, stderr = tidemark(t, "snapshot", folder, "--json", "--top", "2")
	var v struct {
		Ranks []struct {
			File string
			Peak struct {
				Allocated int64 `json:"allocated_bytes"`
			}
		}
		PeakRank int `json:"peak_rank"`
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 || len(v.Ranks) != 5 {
		t.Fatalf("status %d, %v: %s", code, err, stderr)
	}
	if file := v.Ranks[v.PeakRank].File; !strings.Contains(file, "oom_batch") {
		t.Errorf("%s peaks", file)
	}
	hostile := t.TempDir()
	for _, rank := range []string{"0", "1"} {
		content, err := os.ReadFile(a)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(hostile, "snapshot_"+rank+"\nFAKED "+filepath.Base(a)), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, stderr = tidemark(t, "snapshot", hostile); code != 0 || strings.Contains(out+stderr, "\nFAKED") {
		t.Errorf("a newline in a file's name fakes a line: status %d: %s%s", code, out, stderr)
	}
	if code, _, stderr = tidemark(t, "snapshot", t.TempDir()); code != 1 || !strings.Contains(stderr, "holds no snapshot") {
		t.Errorf("an empty folder: status %d: %s", code, stderr)
	}
}

// README shows what the program says.
func TestReadmeShowsExplain(t *testing.T) {
	_, out, _ := tidemark(t, "snapshot", recordedSnapshot("leak_logits"))
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(out, "\n  2. ")
	if !strings.Contains(string(readme), "$ tidemark snapshot leak_logits.pickle.gz\n"+head+"\n```") {
		t.Errorf("README.md does not have\n%s", head)
	}
}
