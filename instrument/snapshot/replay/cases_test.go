package replay

import (
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// TestReplayOfOddForms replays small files of forms that exist: unwinder frames
// first, PyTorch 2.0's, a device that is not the first, private pools, settings
// switched in mid-history, newer keys, protocol 5, a history that begins late.
func TestReplayOfOddForms(t *testing.T) {
	for _, c := range []struct {
		name                string
		device, entries     int
		allocated, reserved int64 // peaks
		ooms, switches      int
		pools               int
	}{
		{"cppframes", 0, 731, 826356736, 874512384, 0, 0, 0},
		{"v20", 0, 731, 826356736, 874512384, 0, 0, 0},
		{"proto5", 0, 731, 826356736, 874512384, 0, 0, 0},
		{"rank3", 3, 515, 826356736, 874512384, 0, 0, 0},
		{"graphpool", 0, 751, 826352640, 1426063360, 0, 0, 1},
		{"switched", 0, 79, 209733120, 266338304, 0, 1, 0},
		{"newkeys", 0, 51, 146813440, 153092096, 0, 0, 0},
		{"wrapped150", 0, 150, 826361344, 874512384, 0, 0, 0},
		{"oom", 0, 167, 893476864, 920649728, 1, 0, 0},
		{"oom-small", 0, 3, 41943040, 41943040, 1, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := snapshot.ReadFile("../testdata/cases/" + c.name + ".pickle.gz")
			if err != nil {
				t.Fatal(err)
			}
			r, err := Run(s, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if r.Difference != nil {
				t.Errorf("segment events differ: %v", r.Difference)
			}
			if r.Device != c.device || r.Entries != c.entries || len(r.OOMs) != c.ooms || len(r.Switches) != c.switches {
				t.Errorf("device %d, %d entries, %d out of memory, %d switches; want %+v", r.Device, r.Entries, len(r.OOMs), len(r.Switches), c)
			}
			if a, m := r.Final.Allocated.Peak, r.Final.Reserved.Peak; a != c.allocated || m != c.reserved {
				t.Errorf("peaks %d allocated, %d reserved; want %d, %d", a, m, c.allocated, c.reserved)
			}
			if sum := snapshot.Summarize(s); len(sum) == 0 || len(sum[len(sum)-1].PrivatePools) != c.pools {
				t.Errorf("private pools: %+v, want %d", sum, c.pools)
			}
		})
	}
}

// TestLimitStaysUnderOtherSettings replays recordings that ran out of memory
// under other settings: the card's memory is hard, and none reserves more.
func TestLimitStaysUnderOtherSettings(t *testing.T) {
	for name, card := range map[string]int64{"oom": 943718400, "oom-small": 52428800} {
		s, err := snapshot.ReadFile("../testdata/cases/" + name + ".pickle.gz")
		if err != nil {
			t.Fatal(err)
		}
		for _, conf := range []string{"expandable_segments:False", "expandable_segments:True", "max_split_size_mb:64", "garbage_collection_threshold:0.5"} {
			config, err := alloc.ParseConfig(conf)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Run(s, Options{Config: &config})
			if err != nil {
				t.Fatal(err)
			}
			if r.CardBytes != card || r.Final.Reserved.Peak > card || len(r.OOMs) != 1 {
				t.Errorf("%s under %s: card of %d bytes, %d reserved, %d out of memory; want %d, no more, 1",
					name, conf, r.CardBytes, r.Final.Reserved.Peak, len(r.OOMs), card)
			}
		}
	}
}

// TestBombsAreRefused reads small files that would take gigabytes.
func TestBombsAreRefused(t *testing.T) {
	for _, name := range []string{"annot", "blocks", "list", "memo", "seg", "trace"} {
		_, err := snapshot.ReadFile("../testdata/cases/bomb_" + name + ".gz")
		if err == nil || !strings.Contains(err.Error(), "which a memory snapshot never does") {
			t.Errorf("bomb_%s: %v", name, err)
		}
	}
	if _, err := snapshot.ReadFile("../testdata/cases/overlap.pkl"); err == nil || !strings.Contains(err.Error(), "overlap") {
		t.Errorf("two segments at one address: %v", err)
	}
}

// TestOtherContainers reads a file of torch.save and a list of segments.
func TestOtherContainers(t *testing.T) {
	for _, name := range []string{"torchsaved.pt", "segments_list.pickle.gz"} {
		s, err := snapshot.ReadFile("../testdata/cases/" + name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if len(s.Segments) == 0 {
			t.Errorf("%s: no segments", name)
		}
	}
}

// TestWindowReplays cuts the middle of a history out: it begins with what was
// live then and ends as the whole had it there.
func TestWindowReplays(t *testing.T) {
	s, err := snapshot.ReadFile("../testdata/cases/cppframes.pickle.gz")
	if err != nil {
		t.Fatal(err)
	}
	entries := s.Traces[0]
	seconds := float64(entries[len(entries)-1].TimeMicros-entries[0].TimeMicros) / 1e6
	w, err := Window(s, seconds/4, seconds/2)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(w.Traces[0]); n == 0 || n >= len(entries) {
		t.Fatalf("%d of %d entries in the window", n, len(entries))
	}
	r, err := Run(w, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Difference != nil || r.Initial.Allocated.Current == 0 {
		t.Errorf("a window does not replay: %v, %d bytes at its beginning", r.Difference, r.Initial.Allocated.Current)
	}
}
