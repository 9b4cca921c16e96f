package accuracy

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Document is docs/accuracy.md: the errors of all comparisons with records of
// two sources, the second of what people fine-tune, of which some are not
// predicted.
func Document(list []*Comparison, source, fineTuning Source, not []NotPredicted) []byte {
	var w bytes.Buffer
	fmt.Fprintf(&w, introduction, source, fineTuning)
	writeSummary(&w, list)
	for i, n := range not {
		if i == 0 {
			w.WriteString("\nNot predicted, and so not compared:")
		}
		fmt.Fprintf(&w, " %s (%s)", n.ID, n.Why)
		if i == len(not)-1 {
			w.WriteString(".\n")
		} else {
			w.WriteString(",")
		}
	}
	w.WriteString("\n## By record\n\n")
	w.WriteString("Errors in per cent of what PyTorch allocated or reserved. *Peak* is the whole training's, with the bytes by\n" +
		"which it is off and the phase it lies in. The other columns are the worst of all phases of all steps.\n\n")
	w.WriteString("| record | peak | bytes off | peak phase | phase peaks | phase starts and ends | reserved |\n| --- | ---: | ---: | --- | ---: | ---: | ---: |\n")
	for _, c := range list {
		phase := c.PeakPhase
		if phase != c.Record.PeakPhase && !c.Record.Whole() {
			phase += ", recorded " + c.Record.PeakPhase
		}
		fmt.Fprintf(&w, "| %s | %s | %+d | %s | %s | %s | %s |\n", c.Record.ID, percent(c.Peak.Error()),
			c.Peak.Predicted-c.Peak.Observed, phase, worst(c, peaks), worst(c, ends), worst(c, reserved))
	}
	w.WriteString("\n## By phase\n\nThe last step of each record, in bytes as recorded, with the prediction's error.\n\n")
	w.WriteString("| record | phase | start | | peak | | end | | reserved | |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, c := range list {
		last := c.Phases[len(c.Phases)-1].Step
		for _, p := range c.Phases {
			if p.Step != last {
				continue
			}
			fmt.Fprintf(&w, "| %s | %s |", c.Record.ID, p.Name)
			for _, f := range []Figure{p.Start, p.Peak, p.End, p.Reserved} {
				fmt.Fprintf(&w, " %d | %s |", f.Observed, percent(f.Error()))
			}
			w.WriteString("\n")
		}
	}
	w.WriteString(unexplained)
	return w.Bytes()
}

func percent(e float64) string {
	s := fmt.Sprintf("%+.3f", 100*e)
	if strings.Trim(s, "+-0.") == "" {
		return "0"
	}
	return s
}

func worst(c *Comparison, of func(*ComparedPhase) []Figure) string {
	e, at := c.Worst(of)
	if s := percent(e); s != "0" {
		return fmt.Sprintf("%s (%d.%s)", s, at.Step, at.Name)
	}
	return "0"
}

func writeSummary(w *bytes.Buffer, list []*Comparison) {
	group := func(name string, in func(*Record) bool) {
		var errors []float64
		var where string
		var most float64
		right, whole := 0, 0
		for _, c := range list {
			if !in(c.Record) {
				continue
			}
			e := math.Abs(c.Peak.Error())
			errors = append(errors, e)
			if e >= most {
				most, where = e, c.Record.ID
			}
			if c.Record.Whole() {
				whole++
			} else if c.PeakPhase == c.Record.PeakPhase {
				right++
			}
		}
		if len(errors) == 0 {
			return
		}
		slices.Sort(errors)
		fmt.Fprintf(w, "| %s | %d | %.4f | %.4f (%s) | %d of %d |\n", name, len(errors), 100*errors[len(errors)/2], 100*most, where, right, len(errors)-whole)
	}
	w.WriteString("| records | number | median error of the peak, % | greatest, % | right peak phase |\n| --- | ---: | ---: | --- | ---: |\n")
	group("float32", func(r *Record) bool { return !r.AMP && !r.BF16 })
	group("autocast", func(r *Record) bool { return r.AMP })
	group("bfloat16", func(r *Record) bool { return r.BF16 })
}

const introduction = `# How exact the predictions are

` + "`tidemark estimate`" + ` predicts PyTorch's memory on the meta device: the eager composition runs the sequence of
operations that PyTorch and transformers run, and the allocator is PyTorch's. This file compares it with what
PyTorch's own allocator counted over three training steps of each workload:
%s, in loops that keep the loss alone,
and %s, of what people fine-tune, in loops that keep the outputs
(` + "`--keep-outputs`" + `) and in transformers' Trainer (` + "`--recipe hf-trainer`" + `, records whose names begin with hf-), whose phases were not told apart. What was allocated before the
model was built (the libraries' workspaces) is subtracted from what was recorded; the first record had none, and there the
workspaces of the profile ` + "`h200`" + ` are predicted too. Regenerate with ` + "`make accuracy`" + `.

Of the traces of small models in predict/testdata/traces the predictions also give every allocation with its requested size, in
PyTorch's order, and every end between the same two allocations (` + "`go test ./predict -run MatchTraces`" + `). Two are of transformers' Trainer
(` + "`--recipe hf-trainer`" + `), three steps each: the sum of the loss divided by the targets that count, outputs converted to float32, clipping,
the optimizer group by group; left out are allocations of a single number, and the counting of targets between steps.

`

const unexplained = `
## What is left

- *gpt2s-b2-adafactor*, peak of optim: 3,148,800 bytes too low. ` + "`torch.norm(grad, dim=-2)`" + ` of the 1,024 × 768 position
  embedding is a reduction over 1,024 rows, which ATen splits among 16 thread blocks that meet in a buffer of
  4 × 768 × 16 × 128 = 6,291,456 bytes. The recorded peak lies 160,691,712 bytes above the phase's start: the last update of the
  token embedding (154,389,504), that buffer, and 10,752 bytes of means and semaphores. The optimizers here have no such
  buffers; the peak of the whole training is not touched.
- *gpt2s-b8-ckpt*: the thread that runs backward takes a cuBLASLt workspace of 1,048,576 bytes when it first recomputes a
  Linear with bias (the small trace shows it within AddmmBackward0). It is part of the profile, but with a base recorded
  before it was taken the comparison leaves all workspaces out.
- *gpt2s-b8-amp*, *gpt2s-b8-bf16*, *qwen15-b16-ckpt*, *qwen15-b16-fused*, *qwen15-b16-amp*: blocks of a few hundred kilobytes more
  or less, and some reserved memory. All requested sizes agree; which of several equally good cached blocks a request gets depends
  on their addresses, and so on where CUDA's driver put the segments. The prediction's addresses follow the pattern that traces
  show (a first range of some hundreds of MiB from its low end, then chunks of 32 MiB downwards), but a process that trained
  something else before, as the recording one had, has other free ranges.
- Reserved memory is off by 1 MiB from the first forward pass on in the smaller records. The base's cuBLASLt workspace takes one of
  the two MiB of a segment of the small pool; PyTorch put small tensors of the model into the other, which is part of what was
  reserved before and so of no difference to it, while the prediction reserves a segment of its own for them.
- Assumed, not observed: workspaces and the split of reductions are those of an H200 (132 multiprocessors); other cards of
  compute capability 9.0 differ by some megabytes. cuDNN's attention workspaces follow a formula fitted to traces with heads of 16
  elements, and it holds for the records' heads of 64 and 128.
- *smollm2-b8*: 33 MiB too low. Its base is of a process that had multiplied matrices in its forward thread only; the thread that runs
  backward takes workspaces of its own, which the comparison leaves out as it leaves out all.
- *bert-b32*: already the model takes 1.1 MB more than recorded, though its trace matches: tensors of 1.5 to 9 MiB are placed in other blocks than
  in the recording process, which had trained other models before. What is reserved is 10 % too high in the first step's update, and 4.4 % at the end.
- Bfloat16 models of the first records were made in float32 and converted (` + "`model.to(torch.bfloat16)`" + `), which leaves cached
  memory behind; those of the second were made in bfloat16, as from_pretrained does and estimate assumes. What is reserved
  differs by up to 18 % between the two.
- In bfloat16 heads of a size that is no multiple of 8 are padded for FlashAttention. That is predicted for GPT-2's packed queries, keys
  and values without a cache, and refused by name for others.
`
