package train

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// eagerLoss is the mean cross-entropy of logits against targets or, without
// targets, the mean of the logits, by the operations that PyTorch runs.
func eagerLoss(b *nn.Builder, logits, targets *gorgonia.Node) (*gorgonia.Node, error) {
	var loss *gorgonia.Node
	var err error
	if targets == nil {
		loss, err = aten.Mean(logits)
	} else {
		loss, err = eagerCrossEntropy(b, logits, targets)
	}
	if err != nil {
		return nil, err
	}
	b.EndForward(loss, targets != nil && (models.ShiftsLabels(b.Root()) || models.LabelsRows(b.Root())))
	return loss, nil
}

func eagerCrossEntropy(b *nn.Builder, logits, targets *gorgonia.Node) (*gorgonia.Node, error) {
	held := []*gorgonia.Node{logits}
	shifts := models.ShiftsLabels(b.Root())
	var err error
	x := logits
	if s, err := op.SpecOf(x); err != nil {
		return nil, err
	} else if shifts && s.DType == device.BFloat16 {
		if x, err = aten.Cast(x, device.Float32, b.Serial()); err != nil {
			return nil, err
		}
		held = append(held, x)
	}
	if shifts {
		padded, err := aten.PaddedLabels(targets, ignoreIndex)
		if err != nil {
			return nil, err
		}
		held = append(held, padded)
		if targets, err = aten.ShiftedLabels(padded); err != nil {
			return nil, err
		}
	}
	if x, err = aten.LogSoftmax(x); err != nil {
		return nil, err
	}
	if b.Autocasts() {
		// Autocast computes the loss itself in float32.
		if x, err = aten.Cast(x, device.Float32, b.Serial()); err != nil {
			return nil, err
		}
	}
	loss, err := aten.NLLLoss(x, targets, ignoreIndex)
	if err != nil {
		return nil, err
	}
	b.KeepUntil(loss, held...)
	return loss, nil
}
