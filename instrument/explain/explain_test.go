package explain

import (
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/instrument/explain/infer"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

func read(t testing.TB, name string) *snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.ReadFile("testdata/" + name + ".pickle.gz")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func explained(t testing.TB, s *snapshot.Snapshot, o Options) *Report {
	t.Helper()
	r, err := Explain(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// recordings are real trainings and a generation, with what PyTorch's counters
// said (max_memory_allocated and max_memory_reserved) and what was wrong.
//
// The categories are counted by hand from the models' shapes, in bytes:
//
// smol is a Llama of width 576, 8 layers, MLP 1536, 9 heads of 64 with 3
// key/value heads, vocabulary 8192, tied. Parameters: embedding 8192·576; a
// layer q and o 576·576 each, k and v 576·192 each, MLP 3·576·1536, norms
// 2·576; the last norm 576: 33,039,936 of 4 bytes, with 256 bytes of rotary
// buffers. AdamW has twice the parameters; fused also 4 bytes for each of 74.
//
// With B rows of T tokens let h = B·T·576·4, n = B·T·4. For its backward pass a
// layer keeps: both norms 2·(2h + n) and their inputs 2h; in attention (the
// math path) q, k and v as it multiplies them 3h and the scores B·9·T·T·4, and
// its output h; in the MLP gate, up, silu and their product 4·B·T·1536·4.
// Besides: the embedding's output h, the last norm 2h + n, cos and sin
// 2·T·64·4, the loss 4, and log-softmax B·T·8192·4 as large as the logits.
var recordings = []struct {
	name            string
	peak, reserved  int64
	phase           string
	kind, line      string
	byCategory      map[instrument.Category]int64
	mentions        string // in the first finding
	mentionsAnyRank string // in some finding
}{
	{"train_smol", 1623948288, 1763704832, "backward", "activations", "train.py:22", map[instrument.Category]int64{
		instrument.Parameter: smolBytes + 256, instrument.OptimizerState: 2*smolBytes + 74*4,
		instrument.Activation: smolKept(8, 256, 8) + 8*256*8192*4,
		instrument.Temporary:  2*8*256*8192*4 + 4, // logits' gradient, and log-softmax's
		instrument.Workspace:  68157440}, "144.0 MiB of that are attention's scores", "Logits"},
	{"leak_logits", 1263417344, 1363148800, "backward", "growth", "train.py:31", map[instrument.Category]int64{
		instrument.Parameter: smolBytes + 256, instrument.OptimizerState: 2 * smolBytes,
		instrument.Activation: smolKept(4, 256, 8) + 4*256*8192*4 + 6*4*256*8192*4, // five steps' logits, and this one's
		instrument.Temporary:  2*4*256*8192*4 + 4, instrument.Workspace: 68157440}, "32.0 MiB a step", "Logits"},
	// It runs out in the second layer's attention: one layer is kept, and the
	// norm of the second.
	{"oom_batch", 3098132480, 3168796672, "forward", "out_of_memory", "train.py:22", map[instrument.Category]int64{
		instrument.Parameter:  smolBytes + 256,
		instrument.Activation: smolKept(64, 512, 1) - 4 + 4096, // no loss yet; the positions
		instrument.Workspace:  68157440}, "576.0 MiB", "between 2.951 GiB and 3.508 GiB"},
	// bfloat16; the cache of the prompt's 64 tokens: keys and values of 8
	// layers, 8 rows, 3 heads of 64.
	{"generate_dynamic", 144750080, 169869312, "forward", "kv_cache_copy", "train.py:43", map[instrument.Category]int64{
		instrument.Parameter: smolBytes/2 + 128, instrument.Activation: 2 * 8 * 8 * 3 * 64 * 64 * 2, instrument.Workspace: 68157440}, "64 times", "StaticCache"},
	// BERT with 4 layers of 768: embeddings (30522+512+2)·768 and a norm of
	// 2·768, a layer 4·(768·768+768) + 2·768·3072 + 3072 + 768 + 4·768, pooler
	// 768·768+768, classifier 2·768+2. Two buffers of 512 int64 are with the
	// parameters.
	{"bert_amp", 1145438720, 1283457024, "optimizer", "optimizer_temporaries", "train.py:53", map[instrument.Category]int64{
		instrument.Parameter: bertBytes + 2*4096, instrument.Gradient: bertBytes, instrument.OptimizerState: 2 * bertBytes, instrument.OptimizerTemporary: bertBytes,
		instrument.Workspace: 68157440}, "fused=True", "74 %"},
}

const (
	smolBytes = 4 * (8192*576 + 8*(2*576*576+2*576*192+3*576*1536+2*576) + 576)
	bertBytes = 4 * ((30522+512+2)*768 + 2*768 + 4*(4*(768*768+768)+2*768*3072+3072+768+4*768) + 768*768 + 768 + 2*768 + 2)
)

func smolKept(B, T, layers int64) int64 {
	h, n := B*T*576*4, B*T*4
	layer := 2*(2*h+n) + 2*h + 3*h + B*9*T*T*4 + h + 4*B*T*1536*4
	return layers*layer + h + 2*h + n + 2*T*64*4 + 4
}

func TestRecordings(t *testing.T) {
	for _, want := range recordings {
		t.Run(want.name, func(t *testing.T) {
			r := explained(t, read(t, want.name), Options{})
			if r.Peak.AllocatedBytes != want.peak || r.PeakReserved.ReservedBytes != want.reserved {
				t.Errorf("peaks %d and %d, PyTorch's counters %d and %d", r.Peak.AllocatedBytes, r.PeakReserved.ReservedBytes, want.peak, want.reserved)
			}
			if r.Peak.Phase != want.phase {
				t.Errorf("the peak is in %s, want %s", r.Peak.Phase, want.phase)
			}
			var sum int64
			for _, n := range r.Peak.ByCategory {
				sum += n
			}
			if sum != want.peak {
				t.Errorf("categories add up to %d", sum)
			}
			for c, n := range want.byCategory {
				if got := r.Peak.ByCategory[infer.CategoryName(c)]; got != n {
					t.Errorf("%v %d, by hand %d", c, got, n)
				}
			}
			if len(r.Answer) != 3 {
				t.Errorf("%d sentences", len(r.Answer))
			}
			f := r.Findings[0]
			if f.Kind != want.kind || f.Line != want.line {
				t.Errorf("the first finding is %s at %s: %s; want %s at %s", f.Kind, f.Line, f.Evidence, want.kind, want.line)
			}
			if !strings.Contains(f.Evidence+f.Remedy, want.mentions) {
				t.Errorf("the first finding does not say %q: %s %s", want.mentions, f.Evidence, f.Remedy)
			}
			all := ""
			for _, f := range r.Findings {
				all += f.Evidence + f.Remedy
			}
			if !strings.Contains(all, want.mentionsAnyRank) {
				t.Errorf("no finding says %q: %s", want.mentionsAnyRank, all)
			}
		})
	}
}

// The step of a training is forward, backward, optimizer and zeroing; what
// only the optimizer's first step makes does not make it another phase.
func TestPhases(t *testing.T) {
	r := explained(t, read(t, "bert_amp"), Options{})
	var got []string
	for _, p := range r.Phases {
		if p.Step != nil && *p.Step == 1 {
			got = append(got, p.Phase)
		}
	}
	if s := strings.Join(got, " "); s != "other forward backward optimizer zeroing" || len(r.Steps) != 3 {
		t.Errorf("phases of step 1 are %s, and there are %d steps", s, len(r.Steps))
	}
}

// What the backward pass makes without frames belongs to the forward line whose
// saved values go next, not to none.
func TestBackwardLines(t *testing.T) {
	r := explained(t, read(t, "train_smol"), Options{})
	for _, g := range r.Peak.ByLine {
		if g.Backward && g.Line == "train.py:22" && g.Bytes == 2*8*256*8192*4+32<<20 {
			return
		}
	}
	t.Errorf("no line has the backward pass's blocks: %+v", r.Peak.ByLine)
}

// What the program itself has named has its own peaks: of AdamW's three steps
// the peak is in the second.
func TestAnnotations(t *testing.T) {
	r := explained(t, read(t, "bert_amp"), Options{})
	var steps []Annotated
	for _, a := range r.Annotations {
		if a.Name == "Optimizer.step#AdamW.step" {
			steps = append(steps, a)
		}
	}
	if len(r.Annotations) != 6 || len(steps) != 3 || steps[1].Peak.AllocatedBytes != r.Peak.AllocatedBytes || steps[1].Event.First > r.Peak.Event || steps[1].Event.End <= r.Peak.Event {
		t.Errorf("%+v", r.Annotations)
	}
}

func TestWindow(t *testing.T) {
	s := read(t, "leak_logits")
	whole := explained(t, s, Options{})
	from, end := 0.0, whole.Peak.Time-0.05
	r := explained(t, s, Options{FromSeconds: &from, ToSeconds: &end, Top: 1})
	if r.Peak.AllocatedBytes >= whole.Peak.AllocatedBytes || r.Peak.Time > end {
		t.Errorf("peak of %d at %v s before %v s", r.Peak.AllocatedBytes, r.Peak.Time, end)
	}
	if len(r.Peak.ByLine) != 1 || len(r.Peak.ByStack) != 1 {
		t.Errorf("%d lines and %d stacks with Top 1", len(r.Peak.ByLine), len(r.Peak.ByStack))
	}
	late := 1e6
	if _, err := Explain(s, Options{FromSeconds: &late}); err == nil || !strings.Contains(err.Error(), "it lasts") {
		t.Errorf("a window after the end: %v", err)
	}
	device := 7
	if _, err := Explain(s, Options{Device: &device}); err == nil {
		t.Error("device 7 is explained")
	}
}
