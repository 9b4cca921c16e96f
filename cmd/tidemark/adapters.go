package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/nn"
)

// adapterFlags choose what of a model is trained.
func adapterFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "lora-rank", Usage: "freeze the model and train adapters of this rank beside its Linear layers, as peft does (LoRA)"},
		&cli.Float64Flag{Name: "lora-alpha", Usage: "the adapters' scale times their rank", DefaultText: "the rank"},
		&cli.Float64Flag{Name: "lora-dropout", Usage: "dropout probability of the adapters' inputs"},
		&cli.StringFlag{Name: "lora-targets", Value: nn.AllLinear, Usage: "names of the Linear layers to adapt, with commas, such as q_proj,v_proj; " + nn.AllLinear + ": all but the head"},
		&cli.StringSliceFlag{Name: "freeze", Usage: "a pattern of names of parameters that are not trained, such as '*.embed_tokens.*'; can be given several times"},
	}
}

// adaptersOf reads them; nil without a rank.
func adaptersOf(c *cli.Context) (*nn.LoRAOptions, []string, error) {
	freeze := c.StringSlice("freeze")
	if !c.IsSet("lora-rank") {
		for _, name := range []string{"lora-alpha", "lora-dropout", "lora-targets"} {
			if c.IsSet(name) {
				return nil, nil, fmt.Errorf("--%s: there are no adapters without --lora-rank", name)
			}
		}
		return nil, freeze, nil
	}
	o := &nn.LoRAOptions{Rank: c.Int("lora-rank"), Alpha: c.Float64("lora-alpha"), Dropout: c.Float64("lora-dropout"),
		Targets: strings.Split(c.String("lora-targets"), ",")}
	if o.Alpha == 0 && !c.IsSet("lora-alpha") {
		o.Alpha = float64(o.Rank)
	}
	if c.IsSet("lora-alpha") && o.Alpha == 0 {
		return nil, nil, fmt.Errorf("--lora-alpha 0: it must be above 0")
	}
	return o, freeze, o.Validate()
}

// trainedText says how much of a model is trained, where it is not all of it.
func trainedText(trained, all int64) string {
	return fmt.Sprintf("%s of %s parameters train (%.2f %%).", show.Grouped(trained), show.Grouped(all), 100*float64(trained)/float64(all))
}
