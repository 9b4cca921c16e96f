package predict_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/predict"
)

// TestMathAttentionTrace compares attention on heads that are no whole vectors
// with what PyTorch's plain operations make and drop, in order. See
// testdata/math_attention.py.
func TestMathAttentionTrace(t *testing.T) {
	b, err := os.ReadFile("testdata/math_attention.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			Rows, Heads, Size, Tokens int
			Events                    []string
		}
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 4 {
		t.Fatalf("%d cases", len(file.Cases))
	}
	for _, c := range file.Cases {
		config := fmt.Sprintf(`{"model_type":"gpt","vocab_size":331,"n_ctx":96,"n_layer":1,"n_embd":%d,"n_head":%d}`, c.Heads*c.Size, c.Heads)
		w := smallWorkload(t, config, c.Rows, c.Tokens, func(w *predict.Workload) { w.Steps, w.Optimizer = 1, "sgd" })
		p, err := predict.Predict(w)
		if err != nil {
			t.Fatal(err)
		}
		var want []traceEvent
		for _, e := range c.Events {
			var n int
			if _, err := fmt.Sscanf(e[2:], "%d", &n); err != nil {
				t.Fatal(err)
			}
			if e[0] == '-' {
				want = append(want, traceEvent{number: n, end: true})
			} else {
				want = append(want, traceEvent{number: countOf(want), bytes: int64(n)})
			}
		}
		compareTraces(t, want, attentionEvents(p, int64(4*c.Rows*c.Heads*c.Tokens*c.Tokens)))
	}
}

// countOf is how many allocations there were.
func countOf(events []traceEvent) (n int) {
	for _, e := range events {
		if !e.end {
			n++
		}
	}
	return n
}

// attentionEvents are the events of a prediction that belong to the tensors of
// attention in its only block, of which a map has so many bytes.
func attentionEvents(p *predict.Prediction, square int64) []traceEvent {
	var events []traceEvent
	live := map[uint64]int{}
	for ev := range p.Recorder.Events() {
		if ev.Retag {
			continue
		}
		if n, ok := live[ev.Addr]; ok && ev.Action == alloc.FreeRequested {
			delete(live, ev.Addr)
			events = append(events, traceEvent{number: n, end: true})
			continue
		}
		l := p.Recorder.Label(ev.Tag)
		if ev.Action != alloc.Alloc {
			continue
		}
		own := l.Module == "blocks.0" && (strings.HasPrefix(l.Op, "aten.mul") || strings.HasPrefix(l.Op, "aten.clone") || strings.HasPrefix(l.Op, "aten.bmm") ||
			strings.HasPrefix(l.Op, "aten.cat") || strings.HasPrefix(l.Op, "aten._softmax") && ev.Size == square)
		if own {
			live[ev.Addr] = countOf(events)
			events = append(events, traceEvent{number: countOf(events), bytes: ev.Size})
		}
	}
	// A gradient of the softmax passes a product of its size.
	var out []traceEvent
	for i := 0; i < len(events); i++ {
		if i+1 < len(events) && !events[i].end && events[i+1].end && events[i+1].number == events[i].number {
			i++
			continue
		}
		out = append(out, events[i])
	}
	return out
}
