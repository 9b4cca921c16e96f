package snapshot

import (
	"runtime/debug"
	"strings"
	"testing"
)

// A file that would take more than a limit of memory leaves is refused before.
// The limit here is below what the process has already, whatever that is, so
// that the least is left, in which a small file fits.
func TestReadUnderMemoryLimit(t *testing.T) {
	// Memory that was given back to the system is not there to be counted twice.
	clear(make([]byte, 512<<20))
	debug.FreeOSMemory()
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 20))
	lists := "\x80\x02" + strings.Repeat("]", 4<<20)
	if _, err := Read(strings.NewReader(lists)); err == nil || !strings.Contains(err.Error(), "GOMEMLIMIT leaves") {
		t.Errorf("error %v, want one that names GOMEMLIMIT", err)
	}
	if _, err := ReadFile("testdata/linear_grad.pkl.gz"); err != nil {
		t.Errorf("a small file: %v", err)
	}
}
