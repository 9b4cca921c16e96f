package train_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/train"
)

func TestDumpDev(t *testing.T) {
	id := os.Getenv("DUMP")
	if id == "" {
		t.Skip()
	}
	data, _ := os.ReadFile("/work/shared/reference/pytorch_memory.json")
	var rs []memoryRecord
	json.Unmarshal(data, &rs)
	f, _ := os.Create("/tmp/eager/dump.txt")
	defer f.Close()
	for _, r := range rs {
		if r.ID != id {
			continue
		}
		w := workloadOf(t, &r)
		n := 0
		live := map[uint64]int{}
		w.Profile, _ = train.FindProfile("h200")
		w.Observe = func(ev *alloc.Event) {
			switch ev.Action {
			case alloc.Alloc:
				live[ev.Addr] = n
				fmt.Fprintf(f, "+%d #%d\n", ev.Size, n)
				n++
			case alloc.FreeCompleted:
				fmt.Fprintf(f, "    -%d #%d\n", ev.Size, live[ev.Addr])
			case alloc.FreeRequested:
			default:
				fmt.Fprintf(f, "%s %d %x\n", ev.Action, ev.Size, ev.Addr)
			}
		}
		if _, err := train.Predict(w); err != nil {
			t.Fatal(err)
		}
	}
}
