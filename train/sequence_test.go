package train_test

import (
	"testing"

	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train"
)

// TestSequenceLength holds every command to one rule for --seq.
func TestSequenceLength(t *testing.T) {
	n := func(n int) *int { return &n }
	for _, c := range []struct {
		preset string
		asked  *int
		most   int
		want   int
		err    string
	}{
		{"gpt-char", nil, 100, 100, ""},
		{"gpt-char", nil, 1000, 256, ""},
		{"gpt-char", n(256), 1, 256, ""},
		{"gpt-char", n(257), 1000, 0, "--seq 257: the model's context is 256 tokens, so it must be from 1 to 256"},
		{"gpt-char", n(0), 1000, 0, "--seq 0: the model's context is 256 tokens, so it must be from 1 to 256"},
		{"mlp-digits", nil, 100, 0, ""},
		{"mlp-digits", n(1), 100, 0, "--seq: a dense net takes no sequences"},
	} {
		config, err := models.Preset(c.preset)
		if err != nil {
			t.Fatal(err)
		}
		got, err := train.SequenceLength(config, c.asked, c.most)
		if text := ""; err != nil {
			if text = err.Error(); text != c.err {
				t.Errorf("%+v: %v", c, err)
			}
		} else if got != c.want || c.err != "" {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
