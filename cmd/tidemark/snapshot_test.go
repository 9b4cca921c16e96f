package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

const traces = "../../instrument/snapshot/testdata/"

// runSnapshot runs the snapshot command as main does.
func runSnapshot(args ...string) (stdout string, err error) {
	var out bytes.Buffer
	app := &cli.App{Name: "tidemark", Writer: &out, ErrWriter: io.Discard,
		Commands: []*cli.Command{snapshotCommand()}, ExitErrHandler: func(*cli.Context, error) {}}
	err = app.Run(reorderArgs(app.Commands, append([]string{"tidemark", "snapshot"}, args...)))
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
	if e, ok := err.(cli.ExitCoder); !ok || e.ExitCode() != exitDoesNotHold || !strings.Contains(err.Error(), "segment event 0: the file has segment_alloc of 2097152") {
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
