package predict

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/nn"
)

// JudgeGeneration decides whether a generation fits each card. own is its
// prediction without a limit; when that ran out of memory, it fits nowhere. What
// would make it fit is looked for among fewer rows and bfloat16, and both.
func JudgeGeneration(g Generation, own *GenerationPrediction, cards []Card) ([]Verdict, error) {
	j := &generationJudge{g: g}
	verdicts := make([]Verdict, len(cards))
	for i, c := range cards {
		v := Verdict{Card: c, UsableBytes: c.Usable()}
		if own.Failed == nil {
			if err := j.judge(&v, own); err != nil {
				return nil, err
			}
		}
		if !v.Fits {
			if err := j.remedies(&v); err != nil {
				return nil, err
			}
		}
		verdicts[i] = v
	}
	return verdicts, nil
}

// generationJudge knows the changes that were predicted.
type generationJudge struct {
	g     Generation
	known map[generationChange]figures
}

// generationChange is what a generation is changed to.
type generationChange struct {
	precision precision.Precision
	rows      int
}

// judge sees whether a generation runs within a card's memory.
func (j *generationJudge) judge(v *Verdict, own *GenerationPrediction) error {
	peak := own.Recorder.Peak()
	room := func(bytes int64) { n := v.UsableBytes - bytes; v.RoomBytes = &n }
	switch {
	case peak.ReservedBytes <= v.UsableBytes:
		v.Fits = true
		room(peak.ReservedBytes)
		return nil
	case peak.AllocatedBytes > v.UsableBytes:
		room(peak.AllocatedBytes)
		return nil
	}
	// Between the two that is up to what the allocator can give back.
	limited := j.g
	limited.Allocator.LimitBytes = v.UsableBytes
	p, err := PredictGeneration(limited)
	if err != nil {
		return err
	}
	if v.Fits = p.Failed == nil; v.Fits {
		room(peak.AllocatedBytes)
	} else {
		v.Fragmented = true
		room(peak.ReservedBytes)
	}
	return nil
}

// remedies are the changes that make it fit: fewer rows, half as many each time,
// a narrower type, and where neither does, both.
func (j *generationJudge) remedies(v *Verdict) error {
	own := cmp.Or(j.g.Precision, precision.FP32)
	narrow := map[nn.Composition]precision.Precision{nn.Eager: precision.BF16, nn.Fused: precision.BF16Mixed}[j.g.Composition]
	fewer := halves(j.g.Rows)
	type kind struct {
		precision precision.Precision
		rows      []int
	}
	kinds := []kind{{own, fewer}}
	if narrow != own {
		kinds = append(kinds, kind{narrow, []int{j.g.Rows}}, kind{narrow, fewer})
	}
	for i, kind := range kinds {
		if i == 2 && len(v.Remedies) > 0 {
			break
		}
		for _, n := range kind.rows {
			change := generationChange{kind.precision, n}
			f, err := j.figures(change)
			if err != nil {
				return err
			}
			v.Tried = append(v.Tried, j.flags(change))
			if f.reserved <= v.UsableBytes && !f.failed {
				v.Remedies = append(v.Remedies, Remedy{Change: j.flags(change), PeakBytes: f.allocated})
				break
			}
		}
	}
	if len(v.Remedies) > 0 {
		v.Tried = nil
	}
	return nil
}

// halves are half of n and so on, down to 1.
func halves(n int) []int {
	var list []int
	for n /= 2; n > 0; n /= 2 {
		list = append(list, n)
	}
	return list
}

// flags are those of the command line for a change.
func (j *generationJudge) flags(c generationChange) string {
	var flags []string
	if c.precision != cmp.Or(j.g.Precision, precision.FP32) {
		flags = append(flags, "--precision "+string(c.precision))
	}
	if c.rows != j.g.Rows {
		flags = append(flags, fmt.Sprintf("--batch %d", c.rows))
	}
	return strings.Join(flags, " ")
}

// figures predicts a change once.
func (j *generationJudge) figures(c generationChange) (figures, error) {
	if f, ok := j.known[c]; ok {
		return f, nil
	}
	g := j.g
	g.Allocator.LimitBytes, g.Precision, g.Rows = 0, c.precision, c.rows
	p, err := PredictGeneration(g)
	if err != nil {
		return figures{}, err
	}
	peak := p.Recorder.Peak()
	f := figures{allocated: peak.AllocatedBytes, reserved: peak.ReservedBytes, failed: p.Failed != nil}
	if j.known == nil {
		j.known = map[generationChange]figures{}
	}
	j.known[c] = f
	return f, nil
}
