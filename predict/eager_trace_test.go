package predict_test

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/predict"
	"github.com/tidemark-lab/tidemark/train"
)

// traceEvent is an allocation or its end in a trace of PyTorch's memory.
type traceEvent struct {
	at     int
	number int // of the allocation
	bytes  int64
	end    bool
	phase  string
	what   string // operation, autograd node and Python call
}

// readTrace reads an annotated trace: two steps of a small model.
func readTrace(t *testing.T, name string) []traceEvent {
	t.Helper()
	f, err := os.Open("testdata/traces/" + name + ".tsv.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	whole := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	var events []traceEvent
	lines := bufio.NewScanner(z)
	lines.Scan() // the header
	for number := 0; lines.Scan(); number++ {
		c := strings.Split(lines.Text(), "\t")
		e := traceEvent{at: whole(c[0]), number: number, bytes: int64(whole(c[2])), phase: c[1], what: strings.Join(c[4:], " ")}
		if e.bytes < 0 {
			e.end = true
			events = append(events, e)
			continue
		}
		events = append(events, e)
		if c[3] != "" {
			e.at, e.end = whole(c[3]), true
			events = append(events, e)
		}
	}
	slices.SortFunc(events, func(a, b traceEvent) int { return cmp.Compare(a.at, b.at) })
	phase := ""
	for i := range events {
		if events[i].end {
			events[i].phase = phase
		}
		phase = events[i].phase
	}
	return events
}

// canonical numbers the allocations and orders ends that follow each other
// without an allocation between them: their order decides nothing.
func canonical(events []traceEvent) []string {
	number := map[int]int{}
	var out []string
	var ends []int
	flush := func() {
		slices.Sort(ends)
		for _, n := range ends {
			out = append(out, fmt.Sprintf("end of %d", n))
		}
		ends = nil
	}
	for _, e := range events {
		if e.end {
			n, ok := number[e.number]
			if !ok {
				continue // it began before
			}
			ends = append(ends, n)
			continue
		}
		flush()
		n := len(number)
		number[e.number] = n
		out = append(out, fmt.Sprintf("%d: %d bytes", n, e.bytes))
	}
	flush()
	return out
}

// recordedEvents are the events of a prediction after the model was made.
func recordedEvents(r *instrument.Recorder) []traceEvent {
	var events []traceEvent
	live := map[uint64]int{}
	number := 0
	first := r.Marks()[0].Event
	for ev := range r.Events() {
		switch {
		case ev.Retag:
		case ev.Action == alloc.Alloc:
			live[ev.Addr] = number
			number++
			if ev.Position >= first {
				events = append(events, traceEvent{number: live[ev.Addr], bytes: ev.Size})
			}
		case ev.Action == alloc.FreeRequested && ev.Position >= first:
			events = append(events, traceEvent{number: live[ev.Addr], bytes: ev.Size, end: true})
		}
	}
	return events
}

func smallWorkload(t *testing.T, config string, rows, tokens int, change func(*predict.Workload)) predict.Workload {
	w := predict.Workload{Model: parse(t, []byte(config)), Shape: train.BatchShape{Rows: rows, Tokens: tokens}, Loss: train.CrossEntropy,
		Steps: 2, Optimizer: "adamw", Composition: nn.Eager}
	if change != nil {
		change(&w)
	}
	return w
}

const (
	traceGPT   = `{"model_type":"gpt","vocab_size":331,"n_ctx":96,"n_layer":2,"n_embd":80,"n_head":5}`
	traceGPT2  = `{"model_type":"gpt2","vocab_size":331,"n_positions":96,"n_layer":2,"n_embd":80,"n_head":5,"use_cache":false}`
	traceLlama = `"use_cache":false,"vocab_size":331,"hidden_size":96,"intermediate_size":272,"num_hidden_layers":2,"num_attention_heads":6,"num_key_value_heads":2}`
	traceQwen2 = `{"model_type":"qwen2","tie_word_embeddings":true,` + traceLlama
)

// gpt2Heads is a small GPT-2 of a width, its heads and its positions.
func gpt2Heads(width, heads, positions int) string {
	return fmt.Sprintf(`{"model_type":"gpt2","vocab_size":331,"n_positions":%d,"n_layer":2,"n_embd":%d,"n_head":%d,"use_cache":false}`, positions, width, heads)
}

// workspace is what cuBLAS takes for the thread that runs backward.
const workspace = 32 << 20

// TestEagerMatchesTraces compares the eager composition's memory with PyTorch's
// allocation by allocation: sizes, order and ends.
func TestEagerMatchesTraces(t *testing.T) {
	optimizer := func(name string) func(*predict.Workload) {
		return func(w *predict.Workload) { w.Optimizer = name }
	}
	amp := func(w *predict.Workload) { w.Precision = precision.BF16Mixed }
	bf16 := func(w *predict.Workload) { w.Precision = precision.BF16 }
	checkpointing := func(w *predict.Workload) { w.GradientCheckpointing = true }
	for name, w := range map[string]predict.Workload{
		"mlp":                smallWorkload(t, `{"model_type":"mlp","dims":[177,409,509,10]}`, 301, 0, func(w *predict.Workload) { w.Shape.Features = 177 }),
		"gpt":                smallWorkload(t, traceGPT, 12, 96, nil),
		"gpt_accum3":         smallWorkload(t, traceGPT, 4, 96, func(w *predict.Workload) { w.Accumulate = 3 }),
		"gpt_adafactor":      smallWorkload(t, traceGPT, 12, 96, optimizer("adafactor")),
		"gpt_adamw_fused":    smallWorkload(t, traceGPT, 12, 96, optimizer("adamw-fused")),
		"gpt_adamw_loop":     smallWorkload(t, traceGPT, 12, 96, optimizer("adamw-loop")),
		"gpt_sgd":            smallWorkload(t, traceGPT, 12, 96, optimizer("sgd")),
		"gpt_sgdm":           smallWorkload(t, traceGPT, 12, 96, optimizer("sgd-momentum")),
		"gpt_amp":            smallWorkload(t, traceGPT, 12, 96, amp),
		"gpt_bf16":           smallWorkload(t, traceGPT, 12, 96, bf16),
		"gpt_ckpt":           smallWorkload(t, traceGPT, 12, 96, checkpointing),
		"gpt_amp_ckpt":       smallWorkload(t, traceGPT, 12, 96, func(w *predict.Workload) { amp(w); checkpointing(w) }),
		"gpt2_ce":            smallWorkload(t, traceGPT2, 12, 88, nil),
		"gpt2_heads8":        smallWorkload(t, gpt2Heads(80, 10, 96), 16, 3, nil),
		"gpt2_bf16_heads16":  smallWorkload(t, gpt2Heads(80, 5, 256), 4, 255, bf16),
		"gpt2_heads17":       smallWorkload(t, gpt2Heads(34, 2, 96), 12, 88, nil),
		"gpt2_heads34":       smallWorkload(t, gpt2Heads(68, 2, 96), 12, 88, nil),
		"gpt2_heads50":       smallWorkload(t, gpt2Heads(100, 2, 96), 12, 88, nil),
		"gpt2_heads128":      smallWorkload(t, gpt2Heads(256, 2, 96), 12, 88, nil),
		"gpt2_heads256":      smallWorkload(t, gpt2Heads(512, 2, 96), 12, 88, nil),
		"gpt2_bf16_heads20":  smallWorkload(t, gpt2Heads(40, 2, 96), 12, 88, bf16),
		"gpt2_bf16_heads36":  smallWorkload(t, gpt2Heads(72, 2, 96), 12, 88, bf16),
		"gpt2_bf16_heads128": smallWorkload(t, gpt2Heads(256, 2, 96), 12, 88, bf16),
		"gpt2_bf16_heads256": smallWorkload(t, gpt2Heads(512, 2, 96), 12, 88, bf16),
		"llama_ce":           smallWorkload(t, `{"model_type":"llama",`+traceLlama, 12, 88, nil),
		"qwen2_ce":           smallWorkload(t, traceQwen2, 12, 88, nil),
		"qwen2_mean":         smallWorkload(t, strings.Replace(traceQwen2, "false", "true", 1), 12, 88, func(w *predict.Workload) { w.Loss = train.MeanOutput }),
		"qwen2_amp":          smallWorkload(t, traceQwen2, 12, 88, amp),
		"qwen2_bf16":         smallWorkload(t, traceQwen2, 12, 88, bf16),
		"qwen2_ckpt":         smallWorkload(t, traceQwen2, 12, 88, checkpointing),
	} {
		t.Run(name, func(t *testing.T) {
			want := slices.DeleteFunc(readTrace(t, name), func(e traceEvent) bool {
				return e.phase == "build" || e.bytes == workspace || name == "gpt_accum3" && e.bytes <= 8 ||
					name == "gpt_ckpt" && e.bytes == 1<<20 // of the thread that computes backward, as the products' is
			})
			p, err := predict.Predict(w)
			if err != nil {
				t.Fatal(err)
			}
			got := recordedEvents(p.Recorder)
			if name == "gpt_accum3" {
				// The loss is divided after the model has returned it, which our
				// plan does in one go: the scalars' order differs.
				got = slices.DeleteFunc(got, func(e traceEvent) bool { return e.bytes <= 8 })
			}
			compareTraces(t, want, got)
		})
	}
}

func compareTraces(t *testing.T, want, got []traceEvent) {
	t.Helper()
	a, b := canonical(want), canonical(got)
	// The model's own allocations come first in both.
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			continue
		}
		from := max(0, i-6)
		t.Logf("PyTorch's trace, then ours, from entry %d (they part at %d):", from, i)
		for j := from; j < min(i+10, len(a), len(b)); j++ {
			t.Logf("%-28s %-28s %s", a[j], b[j], describe(want, a[j]))
		}
		t.Errorf("entry %d of %d: PyTorch has %q, we have %q", i, len(a), a[i], b[i])
		return
	}
	if len(a) != len(b) {
		t.Errorf("PyTorch has %d entries, we have %d", len(a), len(b))
	}
}

// describe says what made an allocation of PyTorch's.
func describe(events []traceEvent, entry string) string {
	var n int
	if _, err := fmt.Sscanf(entry, "%d:", &n); err != nil {
		if _, err := fmt.Sscanf(entry, "end of %d", &n); err != nil {
			return ""
		}
	}
	i := 0
	for _, e := range events {
		if e.end {
			continue
		}
		if i == n {
			return e.phase + " " + e.what
		}
		i++
	}
	return ""
}
