package train_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/train"
	"github.com/tidemark-lab/tidemark/train/session"
)

// TestOutOfMemoryAdvises runs out of memory in different places and looks at
// what is said of it.
func TestOutOfMemoryAdvises(t *testing.T) {
	wide := `{"model_type":"gpt","vocab_size":64,"n_ctx":16,"n_layer":2,"n_embd":512,"n_head":2}`
	for _, c := range []struct {
		model string
		batch int
		limit int64
		where string
		want  string
	}{
		{`{"model_type":"gpt","vocab_size":32,"n_ctx":16,"n_layer":4,"n_embd":64,"n_head":2}`, 512, 60 << 20, "forward", "gradient checkpointing"},
		{wide, 1, 116 << 20, "optim", "fused optimizer"},
		{wide, 1, 20 << 20, "model", "smaller model"},
	} {
		dev := device.NewMeta(alloc.Config{LimitBytes: c.limit})
		rec := instrument.New(instrument.Options{NoTiming: true})
		rec.Attach(dev.Allocator())
		s := miniSettings(t)
		s.Model, s.Batch = parse(t, []byte(c.model)), c.batch
		s.Dropout = 0
		tr, err := train.FromSettings(dev, rec, s, train.TrainerOptions{})
		if err == nil {
			_, err = tr.Step(nil)
		}
		var e *session.AllocationError
		if !errors.As(err, &e) || !errors.Is(err, alloc.ErrOutOfMemory) {
			t.Errorf("%s: error %v, want out of memory", c.where, err)
			continue
		}
		msg := err.Error()
		for _, want := range []string{"phase " + c.where, c.want, "in use: ", "largest free block"} {
			if !strings.Contains(msg, want) {
				t.Errorf("%s: %q lacks %q", c.where, msg, want)
			}
		}
		if strings.Contains(msg, "\n") || e.InUse.Total() == 0 {
			t.Errorf("%s: %q", c.where, msg)
		}
	}
}

// TestGoesOnAfterOutOfMemory fails with a large batch and then trains with a
// small one on the same device.
func TestGoesOnAfterOutOfMemory(t *testing.T) {
	dev := device.NewMeta(alloc.Config{LimitBytes: 60 << 20})
	s := miniSettings(t)
	s.Model = parse(t, []byte(`{"model_type":"gpt","vocab_size":32,"n_ctx":16,"n_layer":4,"n_embd":64,"n_head":2}`))
	s.Batch = 512
	tr, err := train.FromSettings(dev, nil, s, train.TrainerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Step(nil); !errors.Is(err, alloc.ErrOutOfMemory) {
		t.Fatalf("error %v, want out of memory", err)
	}
	tr.Close()
	if n := dev.Allocator().Stats().Allocated.Current; n != 0 {
		t.Errorf("%d bytes are left of the attempt", n)
	}
	s.Batch = 16
	if tr, err = train.FromSettings(dev, nil, s, train.TrainerOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Step(nil); err != nil {
		t.Error(err)
	}
}

// TestFragmentationIsNamed looks at what is advised when enough is reserved
// but in pieces, and when it is not.
func TestFragmentationIsNamed(t *testing.T) {
	for reserved, want := range map[int64]bool{100 + 50: true, 100 + 49: false} {
		e := &session.AllocationError{Bytes: 50, Err: &alloc.OutOfMemoryError{AllocatedBytes: 100, ReservedBytes: reserved}}
		if got := strings.Contains(e.Advice(), "expandable_segments"); got != want {
			t.Errorf("50 bytes asked for, %d reserved of which 100 allocated: advice %q", reserved, e.Advice())
		}
		if e.Expandable = true; strings.Contains(e.Advice(), "expandable_segments") {
			t.Errorf("expandable segments are there already: advice %q", e.Advice())
		}
	}
}
