package train_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/session"
)

func TestGenerate(t *testing.T) {
	s := miniSettings(t)
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	text := miniText(t)
	sources, err := s.OpenSources(text)
	if err != nil {
		t.Fatal(err)
	}
	s.Steps, s.Dropout, s.EvaluateEvery = 400, 0, 0
	s.Schedule.Steps = 400
	tr, err := train.FromSettings(dev, nil, s, train.TrainerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Run(context.Background(), sources, train.LoopOptions{}); err != nil {
		t.Fatal(err)
	}
	g, err := tr.NewGenerator(train.GenerateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	prompt, err := text.Vocabulary.Encode("the quick brown")
	if err != nil {
		t.Fatal(err)
	}
	var out []int32
	if err := g.Generate(context.Background(), [][]int32{prompt}, 8, func(tokens []int32) error {
		out = append(out, tokens...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	got, err := text.Vocabulary.Decode(out)
	if err != nil {
		t.Fatal(err)
	}
	// The text repeats itself: what follows is certain once it is learned.
	if got != " fox jum" {
		t.Errorf("after the prompt comes %q", got)
	}
	e, err := tr.Evaluate(sources.Validation, 0)
	if err != nil || e.Loss > 1 || e.Accuracy < 0.7 {
		t.Errorf("evaluation %+v, %v", e, err)
	}
}

// Greedy and sampled tokens are the same however keys and values are kept, alone
// and beside other prompts.
func TestGenerateWithEveryCache(t *testing.T) {
	for name, config := range decodable {
		t.Run(name, func(t *testing.T) {
			dev := device.NewCPU(alloc.Config{})
			defer dev.Close()
			s := miniSettings(t)
			s.Model, s.Data, s.Tokens, s.Dropout = parse(t, []byte(config)), train.DataSettings{Kind: "random"}, 80, 0
			tr, err := train.FromSettings(dev, nil, s, train.TrainerOptions{})
			if err != nil {
				t.Fatal(err)
			}
			prompts := [][]int32{tokensOf(7, 3), tokensOf(2, 6), tokensOf(11, 4)}
			generate := func(o train.GenerateOptions, prompts ...[]int32) [][]int32 {
				g, err := tr.NewGenerator(o)
				if err != nil {
					t.Fatal(err)
				}
				rows := make([][]int32, len(prompts))
				if err := g.Generate(t.Context(), prompts, 64, func(tokens []int32) error {
					for i, token := range tokens {
						rows[i] = append(rows[i], token)
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				return rows
			}
			for _, temperature := range []float64{0, 1} {
				want := generate(train.GenerateOptions{Cache: train.CacheNone, Temperature: temperature, Seed: 2}, prompts...)
				for _, kind := range []train.CacheKind{"", train.CacheDynamic, train.CacheStatic, train.CacheSliding} {
					o := train.GenerateOptions{Cache: kind, Temperature: temperature, Seed: 2}
					for i, row := range generate(o, prompts...) {
						if !slices.Equal(row, want[i]) {
							t.Errorf("cache %q, temperature %v, prompt %d: %v, computed again %v", kind, temperature, i, row, want[i])
						}
					}
					if row := generate(o, prompts[0])[0]; !slices.Equal(row, want[0]) {
						t.Errorf("cache %q, temperature %v, alone: %v, beside others %v", kind, temperature, row, want[0])
					}
				}
			}
		})
	}
}

// Caches end with the window, and what goes beyond is refused before anything
// is computed; a table of positions ends with the context.
func TestGenerateBeyondTheWindow(t *testing.T) {
	dev := device.NewMeta(alloc.Config{})
	for _, c := range []struct {
		model string
		kind  train.CacheKind
		n     int
		fits  bool
	}{
		{"llama", train.CacheDynamic, 18, true}, {"llama", train.CacheDynamic, 19, false},
		{"llama", train.CacheStatic, 18, true}, {"llama", train.CacheStatic, 19, false},
		{"llama", train.CacheSliding, 90, true}, {"gpt", train.CacheSliding, 78, true}, {"gpt", train.CacheSliding, 79, false},
		{"gpt", train.CacheNone, 90, true}, {"gpt", "", 90, true},
	} {
		s := miniSettings(t)
		s.Model, s.Data, s.Tokens, s.Dropout = parse(t, []byte(decodable[c.model])), train.DataSettings{Kind: "random"}, 20, 0
		tr, err := train.FromSettings(dev, nil, s, train.TrainerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		g, err := tr.NewGenerator(train.GenerateOptions{Cache: c.kind})
		if err != nil {
			t.Fatal(err)
		}
		emitted := 0
		err = g.Generate(t.Context(), [][]int32{{1, 2, 3}}, c.n, func([]int32) error { emitted++; return nil })
		if c.fits && (err != nil || emitted != c.n) || !c.fits && (err == nil || emitted != 0) {
			t.Errorf("%s, cache %q, %d tokens: %d emitted, error %v", c.model, c.kind, c.n, emitted, err)
		}
	}
}

// TestMaterializeCanBeInterrupted stops between two parameters, and gives back
// what was taken.
func TestMaterializeCanBeInterrupted(t *testing.T) {
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	asked := 0
	s := miniSettings(t)
	_, err := train.FromSettings(dev, nil, s, train.TrainerOptions{Session: session.Options{Interrupted: func() error {
		if asked++; asked > 3 {
			return context.Canceled
		}
		return nil
	}}})
	if !errors.Is(err, context.Canceled) || asked != 4 {
		t.Errorf("asked %d times: %v", asked, err)
	}
	if n := dev.Allocator().Stats().Allocated.Current; n != 0 {
		t.Errorf("%d bytes are still allocated", n)
	}
}
