package models

import (
	"fmt"
	"slices"

	"github.com/tidemark-lab/tidemark/nn"
)

// family is all that is known of a kind of model by its model_type. What is to be
// known of a model that was made of a config, the model tells itself: see facts.
type family struct {
	name string
	// keys are what becomes of the keys of its configs; of two rows for one key
	// the later counts.
	keys []keyRow
	// read takes what the model needs out of a config. The function that it
	// returns makes the model, and is called if nothing was wrong.
	read func(r *reader) func() nn.Module
	// resize says which keys change with depth, width or number of heads; 0
	// leaves what there is.
	resize func(c Config, layers, width, heads int) (map[string]any, error)
	// depth is the key of the number of layers; empty for a model that is not
	// made of blocks.
	depth string
	// dropouts are the keys of the probabilities of dropout, attentionDropout
	// that of the attention's weights, which alone does not make a model one with
	// dropout.
	dropouts         []string
	attentionDropout string
	// textVocabulary says that the vocabulary of a preset is that of its text.
	textVocabulary bool
}

// families are the kinds of models that there are.
var families = []*family{&mlpFamily, &bertFamily, &gptFamily, &gpt2Family, &gptNeoXFamily, &gemma2Family, &gemma3Family, &llamaFamily, &mistralFamily, &phi3Family, &qwen2Family, &qwen3Family}

// Families lists the values of model_type that ParseConfig knows.
func Families() []string {
	var names []string
	for _, f := range families {
		names = append(names, f.name)
	}
	return names
}

// familyOf is the row of a model_type; nil where there is none.
func familyOf(name string) *family {
	for _, f := range families {
		if f.name == name {
			return f
		}
	}
	return nil
}

// Resize returns a config with another depth, width or number of heads; 0
// leaves what it has. Widths of the inner layers and the number of key/value
// heads keep their ratio as nearly as they can.
func Resize(c Config, layers, width, heads int) (Config, error) {
	if layers < 0 || width < 0 || heads < 0 {
		return Config{}, fmt.Errorf("layers, width and heads must not be negative")
	}
	for _, n := range []int{layers, width, heads} {
		if n >= maxSize {
			return Config{}, fmt.Errorf("%d is too large: they are from 1 to %d", n, maxSize-1)
		}
	}
	if f := familyOf(c.Type()); f != nil {
		changes, err := f.resize(c, layers, width, heads)
		if err != nil {
			return Config{}, err
		}
		c = c.With(changes)
	}
	if _, err := New(c); err != nil {
		return Config{}, err
	}
	return c, nil
}

// resizing collects the keys that Resize changes.
type resizing struct {
	config  Config
	changes map[string]any
}

func newResizing(c Config) resizing { return resizing{c, map[string]any{}} }

// get is a whole number of the config; 0 where there is none.
func (z resizing) get(key string) int {
	n, _ := whole(z.config.values[key])
	return n
}

// set changes a key, unless n is 0.
func (z resizing) set(key string, n int) {
	if n > 0 {
		z.changes[key] = n
	}
}

// Depth is how many blocks of one kind a model has, of which Resize makes more
// or fewer; 0 for one that is not made of such.
func Depth(c Config) int {
	if f := familyOf(c.Type()); f != nil && f.depth != "" {
		return newResizing(c).get(f.depth)
	}
	return 0
}

// Period is after how many layers their kinds come again; 1 where they are alike.
func Period(c Config) int {
	m, err := New(c)
	if err != nil {
		return 1
	}
	return max(1, factsOf(m).period)
}

// FitsVocabulary reports whether the vocabulary of a preset of a config's family
// stands for that of the text which it is trained on.
func FitsVocabulary(c Config) bool {
	f := familyOf(c.Type())
	return f != nil && f.textVocabulary
}

// WithDropout returns the config with every dropout's probability p, from 0 up
// to, but not including, 1.
func WithDropout(c Config, p float64) (Config, error) {
	if !(p >= 0 && p < 1) {
		return c, fmt.Errorf("%v: it must be from 0 up to, but not including, 1", p)
	}
	f := familyOf(c.Type())
	if f == nil || p > 0 && len(f.dropouts) == 0 {
		return c, fmt.Errorf("%v: a model of type %s has no dropout", p, c.Type())
	}
	keys := f.dropouts
	if f.attentionDropout != "" {
		keys = append(slices.Clone(keys), f.attentionDropout)
	}
	changes := make(map[string]any)
	for _, k := range keys {
		changes[k] = p
	}
	return c.With(changes), nil
}

// CheckTrainable finds what a config asks for that changes no size, so that
// predictions take it, but values that are not computed.
func CheckTrainable(c Config) error {
	m, err := New(c)
	if err != nil {
		return err
	}
	if what := factsOf(m).notComputed; what != "" {
		return fmt.Errorf("%s config: %s", c.Type(), what)
	}
	return nil
}

// transformersKeys joins the keys of all of transformers' models with those of a
// family.
func transformersKeys(rows ...[]keyRow) []keyRow {
	return slices.Concat(append([][]keyRow{sharedKeys}, rows...)...)
}
