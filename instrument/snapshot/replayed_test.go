package snapshot_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/instrument/snapshot"
	"github.com/tidemark-lab/tidemark/instrument/snapshot/replay"
)

// What our own allocator did replays as it was recorded.
func TestSampleReplays(t *testing.T) {
	if r, err := replay.Run(snapshot.Sample(t, 3000), replay.Options{}); err != nil || r.Difference != nil || len(r.Replayed) == 0 {
		t.Errorf("replay: %v, %+v", err, r)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(snapshot.Gunzipped(f, "linear_grad"))
	f.Add([]byte(snapshot.Entries(snapshot.With("size", "K\x01"))))
	f.Add([]byte("\x80\x02}(X\x08\x00\x00\x00segments]X\x0d\x00\x00\x00device_traces]q\x00h\x00au."))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := snapshot.Read(bytes.NewReader(data))
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatal("error of several lines")
			}
			return
		}
		replay.Run(s, replay.Options{}) // must not panic
		snapshot.Write(io.Discard, s)
	})
}
