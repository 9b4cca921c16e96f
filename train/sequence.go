package train

import (
	"errors"
	"fmt"

	"github.com/tidemark-lab/tidemark/nn/models"
)

// SequenceLength is how many tokens the sequences of a model have: asked, which
// must be from 1 to the model's context, or without it (nil) the context, at
// most so many tokens; 0 for a dense net, which takes none. Its errors name
// --seq, as every command calls it.
func SequenceLength(c models.Config, asked *int, most int) (int, error) {
	context, _, features, err := models.Sizes(c)
	switch {
	case err != nil:
		return 0, err
	case features > 0 && asked != nil:
		return 0, errors.New("--seq: a dense net takes no sequences")
	case features > 0:
		return 0, nil
	case asked == nil:
		return min(context, most), nil
	case *asked < 1 || *asked > context:
		return 0, fmt.Errorf("--seq %d: the model's context is %d tokens, so it must be from 1 to %d", *asked, context, context)
	}
	return *asked, nil
}
