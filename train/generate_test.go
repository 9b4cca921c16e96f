package train_test

import (
	"context"
	"errors"
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
	tr, err := train.NewTrainer(dev, nil, s, train.TrainerOptions{})
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
	if err := g.Generate(context.Background(), prompt, 8, func(token int32) error {
		out = append(out, token)
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

// TestMaterializeCanBeInterrupted stops between two parameters, and gives back
// what was taken.
func TestMaterializeCanBeInterrupted(t *testing.T) {
	dev := device.NewCPU(alloc.Config{})
	defer dev.Close()
	asked := 0
	s := miniSettings(t)
	_, err := train.NewTrainer(dev, nil, s, train.TrainerOptions{Session: session.Options{Interrupted: func() error {
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
