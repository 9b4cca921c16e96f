package train

import (
	"errors"
	"fmt"

	"github.com/tidemark-lab/tidemark/nn"
)

// Restrict has only a part of a model trained: adapters, if there are any, and what
// no pattern freezes (see nn.Freeze).
func Restrict(model nn.Module, lora *nn.LoRAOptions, freeze []string) error {
	if lora != nil {
		if err := nn.AddLoRA(model, *lora); err != nil {
			return err
		}
	}
	for _, pattern := range freeze {
		switch n, err := nn.Freeze(model, pattern); {
		case err != nil:
			return err
		case n == 0:
			return fmt.Errorf("freezing %q: no parameter has such a name; there is %s", pattern, nn.Parameters(model)[0].Name)
		}
	}
	if nn.CountTrained(model) == 0 {
		return errors.New("all parameters are frozen: nothing is left to train")
	}
	return nil
}
