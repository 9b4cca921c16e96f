package snapshots

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
)

const traces = "../../../instrument/snapshot/testdata/"

// runSnapshot runs the snapshot command as main does.
func runSnapshot(args ...string) (stdout string, err error) {
	var out bytes.Buffer
	app := &cli.App{Name: "tidemark", Writer: &out, ErrWriter: io.Discard,
		Commands: []*cli.Command{Command()}, ExitErrHandler: func(*cli.Context, error) {}}
	err = app.Run(shell.ReorderArgs(app.Commands, append([]string{"tidemark", "snapshot"}, args...)))
	return out.String(), err
}

func TestSnapshotStat(t *testing.T) {
	out, err := runSnapshot("stat", traces+"oom_default.pkl.gz", "--bytes")
	for _, want := range []string{"1542 alloc,", "1 oom", "segments   59", "default", "in 234 blocks", "bytes)"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v; no %q in\n%s", err, want, out)
		}
	}
	out, err = runSnapshot("stat", traces+"varlen_expand.pkl.gz", "--json", "--top", "2")
	var got statOutput
	if err != nil || json.Unmarshal([]byte(out), &got) != nil {
		t.Fatal(err, out)
	}
	if !got.Settings.ExpandableSegments || len(got.Devices) != 1 || len(got.Devices[0].Largest) != 2 ||
		got.Devices[0].PeakReserved != 763363328 || got.Devices[0].Actions["segment_map"] != 65 {
		t.Errorf("%+v", got)
	}
}

func TestSnapshotReplay(t *testing.T) {
	out, err := runSnapshot("replay", traces+"gptchar_default.pkl.gz", "--check", "--json")
	var got replayOutput
	if err != nil || json.Unmarshal([]byte(out), &got) != nil {
		t.Fatal(err, out)
	}
	if got.Final.Allocated.Peak != 849832448 || got.Final.Reserved.Peak != 943718400 || got.SegmentEvents.Replayed != 50 ||
		got.SegmentEvents.Difference != nil || got.Entries != got.EntriesReplayed {
		t.Errorf("%+v", got)
	}
	if out, err = runSnapshot("replay", "--limit-bytes", "2147483648", traces+"oom_default.pkl.gz", "--check"); err != nil ||
		!strings.Contains(out, "as recorded") || !strings.Contains(strings.Join(strings.Fields(out), " "), "segment events 141 141 +0") {
		t.Errorf("%v\n%s", err, out)
	}
	_, err = runSnapshot("replay", traces+"varlen_default.pkl.gz", "--alloc-conf", "expandable_segments:True", "--check")
	if e, ok := err.(cli.ExitCoder); !ok || e.ExitCode() != shell.ExitDoesNotHold || !strings.Contains(err.Error(), "segment event 0: the file has segment_alloc of 2097152") {
		t.Errorf("a difference gives %v", err)
	}
	if out, err = runSnapshot("replay", traces+"varlen_default.pkl.gz", "--limit-bytes", "300000000"); err != nil || !strings.Contains(out, "ends the replay") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestSnapshotRefuses(t *testing.T) {
	text := filepath.Join(t.TempDir(), "x.pickle")
	if err := os.WriteFile(text, []byte("no pickle"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := traces + "linear_grad.pkl.gz"
	for _, c := range []struct {
		args string
		want string
	}{
		{"", "stat, replay or convert"},
		{"draw", "unknown snapshot command"},
		{"stat", "one snapshot file"},
		{"stat a b", "got 2 arguments"},
		{"stat missing.pickle", "missing.pickle"},
		{"stat " + text, "byte 0: not a pickle"},
		{"stat --top -1 " + good, "--top -1"},
		{"replay " + good + " --limit-bytes -1", "--limit-bytes -1"},
		{"replay " + good + " --device 99", "no device 99"},
		{"replay " + good + " --alloc-conf nope:1", "max_split_size_mb"},
	} {
		_, err := runSnapshot(strings.Fields(c.args)...)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v, want one with %q", c.args, err, c.want)
		}
		if _, ok := err.(cli.ExitCoder); ok {
			t.Errorf("%q: has a status of its own", c.args)
		}
	}
}

// A converted file says what the one that it comes from says, in every
// protocol; what exists is not replaced.
func TestSnapshotConvert(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.pickle")
	file := traces + "cases/proto5.pickle.gz"
	replay := func(file string) string {
		out, err := runSnapshot("replay", file, "--check")
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	want := replay(file)
	for _, p := range []string{"2", "3", "4", "5"} {
		out, err := runSnapshot("convert", file, "--out", path, "--protocol", p, "--force")
		data, readErr := os.ReadFile(path)
		if err != nil || readErr != nil || !strings.Contains(out, "731 of 731 entries") || data[1] != p[0]-'0' {
			t.Fatalf("protocol %s: %v, %v, %s", p, err, readErr, out)
		}
		if got := replay(path); got != want {
			t.Errorf("protocol %s replays as\n%s, want\n%s", p, got, want)
		}
	}
	for args, want := range map[string]string{
		"convert " + file:                    "--out",
		"convert " + file + " --out " + path: "exists already",
		"convert " + file + " --force --out " + path + " --protocol 6":                    "from 2 to 5",
		"convert " + file + " --force --out " + path + " --from -1":                       "0 or more",
		"convert " + file + " --force --out " + path + " --from 999":                      "no entry lies",
		"convert " + file + " --force --out " + path + " --from 2 --to 1":                 "--to must be after",
		"convert " + traces + "cases/v20.pickle.gz --force --out " + path + " --from 0.1": "no times",
	} {
		if _, err := runSnapshot(strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", args, err, want)
		}
	}
}

// Under other settings a replay ends with a comparison and names the limit.
func TestSnapshotReplayCompares(t *testing.T) {
	out, err := runSnapshot("replay", traces+"cases/oom.pickle.gz", "--alloc-conf", "expandable_segments:True")
	for _, want := range []string{"the card had 943718400 bytes", "card in force", "as recorded", "difference"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v; no %q in\n%s", err, want, out)
		}
	}
	if strings.Contains(out, "the file has") {
		t.Errorf("a mismatch under other settings:\n%s", out)
	}
	for file, want := range map[string]string{"graphpool": "private pool (0, 1), kept apart", "switched": "from entry 76 on segments are expandable", "wrapped150": "before the history"} {
		if out, err := runSnapshot("replay", traces+"cases/"+file+".pickle.gz"); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v; no %q in\n%s", file, err, want, out)
		}
	}
}
