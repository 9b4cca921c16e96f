package explain

import (
	"bytes"
	"encoding/csv"
	"strconv"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

func analyzed(t testing.TB, name string, o Options) *Analysis {
	t.Helper()
	a, err := Analyze(read(t, name), o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Folded stacks and the profile add up to the peak, and show the user's line.
func TestFoldedAndProfile(t *testing.T) {
	a := analyzed(t, "train_smol", Options{})
	peak := a.usage(a.peak).AllocatedBytes
	var out bytes.Buffer
	if err := a.WriteFolded(&out); err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		i := strings.LastIndexByte(line, ' ')
		n, err := strconv.ParseInt(line[i+1:], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if sum != peak || !strings.Contains(out.String(), "train.py:22 train;") || strings.Contains(out.String(), "_call_impl") {
		t.Errorf("folded stacks of %d bytes, the peak is %d", sum, peak)
	}
	out.Reset()
	if err := a.WriteProfile(&out); err != nil {
		t.Fatal(err)
	}
	p, err := profile.Parse(&out)
	if err != nil {
		t.Fatal(err)
	}
	sum = 0
	categories := map[string]int64{}
	for _, s := range p.Sample {
		sum += s.Value[1]
		categories[s.Label["category"][0]] += s.Value[1]
	}
	if sum != peak || categories["parameter"] < smolBytes || p.SampleType[1].Unit != "bytes" {
		t.Errorf("a profile of %d bytes, %v", sum, categories)
	}
}

// The tables join: every event's block is in blocks, and lines add up.
func TestTables(t *testing.T) {
	a := analyzed(t, "oom_batch", Options{})
	rows := map[string][][]string{}
	for _, table := range a.Tables() {
		var out bytes.Buffer
		if err := table.Write(&out); err != nil {
			t.Fatal(err)
		}
		list, err := csv.NewReader(&out).ReadAll()
		if err != nil {
			t.Fatal(table.Name, err)
		}
		rows[table.Name] = list[1:]
	}
	if len(rows["events.csv"]) != 601 || len(rows["blocks.csv"]) != len(a.h.Blocks) || len(rows["stacks.csv"]) == 0 {
		t.Errorf("%d events, %d blocks, %d frames", len(rows["events.csv"]), len(rows["blocks.csv"]), len(rows["stacks.csv"]))
	}
	for _, e := range rows["events.csv"] {
		if e[2] == "alloc" {
			n, _ := strconv.Atoi(e[6])
			if b := rows["blocks.csv"][n]; b[1] != e[0] || b[5] != e[4] {
				t.Fatalf("event %v is about block %v", e, b)
			}
		}
	}
	var sum int64
	for _, l := range rows["lines.csv"] {
		n, _ := strconv.ParseInt(l[2], 10, 64)
		sum += n
	}
	if sum != 3098132480 {
		t.Errorf("lines add up to %d", sum)
	}
}

func TestCompare(t *testing.T) {
	a, b := analyzed(t, "leak_logits", Options{}), analyzed(t, "leak_logits", Options{})
	at := 0.1
	x, err := a.At(&at)
	if err != nil {
		t.Fatal(err)
	}
	y, err := b.At(nil)
	if err != nil {
		t.Fatal(err)
	}
	d := Compare("a", "b", &x, &y, 0)
	var sum int64
	for _, c := range d.ByLine {
		sum += c.Bytes
	}
	if want := y.AllocatedBytes - x.AllocatedBytes; sum != want || want == 0 {
		t.Errorf("lines change by %d, allocated bytes by %d", sum, want)
	}
	if c := d.ByLine[0]; c.BBytes-c.ABytes != c.Bytes || !strings.HasPrefix(c.Line, "train.py:31") {
		t.Errorf("what grew most is %+v", c)
	}
	if same := Compare("b", "b", &y, &y, 3); same.ByLine[0].Bytes != 0 || !strings.Contains(same.Answer[2], "nothing differs") {
		t.Errorf("a history differs from itself: %v", same.Answer)
	}
	at = 1e9
	if _, err := a.At(&at); err == nil {
		t.Error("a moment after the end")
	}
}

func TestRankOf(t *testing.T) {
	for name, want := range map[string]int{"snapshot_0.pickle": 0, "d/mem-rank-3-step10.pickle.gz": 3, "Rank12.pkl": 12, "x_rank_07.pickle": 7,
		"run2/snapshot.pickle": -1, "iteration_10_5.pickle": 5} {
		if got := RankOf(name); got != want {
			t.Errorf("RankOf(%s) = %d, want %d", name, got, want)
		}
	}
}

func TestCompareRanks(t *testing.T) {
	var reports []*Report
	for i, name := range []string{"leak_logits", "train_smol", "leak_logits"} {
		r := explained(t, read(t, name), Options{})
		r.File = "rank" + strconv.Itoa(2-i) + ".pickle"
		reports = append(reports, r)
	}
	r := CompareRanks("folder", reports, 4)
	if r.PeakRank != 1 || len(r.Ranks) != 3 || r.Ranks[0].File != "rank0.pickle" || len(r.ByLine) != 4 || len(r.Ranks[0].Peak.ByLine) != 4 {
		t.Errorf("%+v", r)
	}
	if s := r.ByLine[0]; s.Spread != s.ByRank[1]-s.ByRank[0] || !strings.HasPrefix(s.Line, "train.py:22") {
		t.Errorf("the ranks differ most in %+v", s)
	}
}

// A limit below the peak does not fit, and the finding says where.
func TestLimit(t *testing.T) {
	s := read(t, "train_smol")
	r := explained(t, s, Options{LimitBytes: 12 << 27})
	if r.Limit == nil || r.Limit.Fits || r.Findings[0].Kind != "does_not_fit" || !strings.HasPrefix(r.Limit.Line, "train.py:22") {
		t.Errorf("%+v, first %s", r.Limit, r.Findings[0].Kind)
	}
	if r = explained(t, s, Options{LimitBytes: 2 << 30}); !r.Limit.Fits || r.Findings[0].Kind == "does_not_fit" {
		t.Errorf("%+v", r.Limit)
	}
}
