package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/precision"
	"github.com/tidemark-lab/tidemark/instrument/report"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/predict"
)

// precisionOf is the precision of an estimate and where it comes from: from
// --precision or, without it, from the config's dtype, in which transformers
// makes and loads the model; else it is PyTorch's default.
func precisionOf(c *cli.Context, config models.Config, composition nn.Composition) (p precision.Precision, from string, err error) {
	if c.IsSet("precision") {
		if p, err = precision.Parse(c.String("precision")); err != nil {
			return p, "", fmt.Errorf("--%w", err)
		}
		return p, report.FromFlag, nil
	}
	key, dtype := config.Precision()
	switch {
	case dtype == "":
		return precision.FP32, report.FromDefault, nil
	case composition == nn.Fused:
		return precision.FP32, report.FromDefault + " (the fused composition keeps parameters in float32, whatever " + key + " says)", nil
	case dtype == "float32":
		return precision.FP32, "config (" + key + ")", nil
	case dtype == "bfloat16":
		return precision.BF16, "config (" + key + ")", nil
	case dtype == "float16":
		return precision.BF16, "config (" + key + " float16, of bfloat16's sizes)", nil
	}
	return "", "", fmt.Errorf("the config's %s is %s: give --precision %s", key, dtype, precision.Names())
}

// choicesOf says what an estimate takes for granted beside numbers of bytes.
func choicesOf(w predict.Workload, s estimateSettings) []report.Assumption {
	list := []report.Assumption{{Name: "precision " + string(s.Precision), Basis: report.Assumed, Why: "source: " + s.Sources["precision"]}}
	if w.Composition != nn.Eager || w.Shape.Tokens == 0 {
		return list
	}
	list = append(list, report.Assumption{Name: predict.Versions, Basis: report.Assumed, Why: "whose memory the prediction follows"},
		report.Assumption{Name: "recipe " + string(w.Recipe), Basis: report.Assumed, Why: w.RecipeText()})
	list = append(list, report.Assumption{Name: "attention sdpa", Basis: report.Assumed,
		Why: "PyTorch's scaled_dot_product_attention; attn_implementation eager keeps each layer's map of batch × heads × tokens × tokens, and needs more"})
	if w.Precision.Parameters() == device.BFloat16 {
		list = append(list, report.Assumption{Name: "weights made in bfloat16", Basis: report.Assumed,
			Why: "as from_pretrained(dtype=\"bfloat16\") makes them; a model that is made in float32 and converted leaves cached memory behind, and reserves more"})
	}
	if w.KeepsCache() {
		list = append(list, report.Assumption{Name: "use_cache", Basis: report.Assumed,
			Why: "the model is called without use_cache=False, so that it copies keys and values (use_cache of the config, true when absent)"})
	}
	return list
}
