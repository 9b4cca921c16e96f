package instrument

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// ticking returns a clock that moves on by a second each time it is read.
func ticking() func() time.Duration {
	var now time.Duration
	return func() time.Duration { now += time.Second; return now }
}

func TestPhaseProtocol(t *testing.T) {
	r := New(Options{Clock: ticking()})
	f := &fake{}
	r.Attach(f)
	tag := r.Tag(Label{Category: Activation})
	kept := f.alloc(512, tag)
	var trail []string
	sync := func() error { trail = append(trail, "sync"); return nil }
	r.Step(3)
	rec, err := r.Phase("forward", sync, func() error {
		trail = append(trail, "run")
		f.free(f.alloc(2048, tag), 2048, tag)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(trail, " "); got != "sync run sync" {
		t.Errorf("order %q", got)
	}
	if rec.Start.AllocatedBytes != 512 || rec.Peak.AllocatedBytes != 2560 || rec.End.AllocatedBytes != 512 ||
		rec.Peak.ReservedBytes != 2560 || rec.Step != 3 || rec.Seconds == nil || *rec.Seconds <= 0 || !rec.Finished {
		t.Errorf("record %+v", rec)
	}
	// The next phase's peak starts anew.
	next, _ := r.Phase("backward", sync, func() error { f.free(kept, 512, tag); return nil })
	if next.Peak.AllocatedBytes != 512 || next.End.AllocatedBytes != 0 || next.FirstEvent != rec.EndEvent {
		t.Errorf("second phase %+v", next)
	}
	r.Loss(1.5)
	r.Step(3) // the same number again is another step
	r.Phase("forward", sync, func() error { return nil })
	r.EndStep()
	r.Phase("after", nil, func() error { return nil })
	steps := r.Steps()
	if len(steps) != 2 || len(steps[0].Phases) != 2 || len(steps[1].Phases) != 1 || *steps[0].Loss != 1.5 ||
		steps[1].Loss != nil || steps[1].Seconds == nil || len(r.Phases()) != 4 || r.Phases()[3].Step != NoStep {
		t.Errorf("steps %+v", steps)
	}
}

func TestPhaseNests(t *testing.T) {
	r := New(Options{NoTiming: true})
	f := &fake{}
	r.Attach(f)
	r.Phase("outer", nil, func() error {
		inner, _ := r.Phase("inner", nil, func() error {
			f.free(f.alloc(1<<20, 0), 1<<20, 0)
			return nil
		})
		if inner.Depth != 1 {
			t.Errorf("inner depth %d", inner.Depth)
		}
		f.alloc(512, 0)
		return nil
	})
	outer := r.Phases()[0]
	if outer.Name != "outer" || outer.Peak.AllocatedBytes != 1<<20 || outer.End.AllocatedBytes != 512 || outer.Seconds != nil {
		t.Errorf("outer %+v", outer)
	}
	if p := r.Peak(); p.Phase != "inner" || p.Step != NoStep || p.Time != 0 {
		t.Errorf("peak %+v", p)
	}
}

func TestPhaseFails(t *testing.T) {
	broken := errors.New("out of memory")
	r := New(Options{NoTiming: true})
	f := &fake{}
	r.Attach(f)
	rec, err := r.Phase("forward", nil, func() error { f.alloc(4096, 0); return broken })
	if !errors.Is(err, broken) || err.Error() != "phase forward: out of memory" {
		t.Errorf("error %v", err)
	}
	if rec.Error != "out of memory" || rec.End.AllocatedBytes != 4096 || rec.Peak.AllocatedBytes != 4096 {
		t.Errorf("a failed phase keeps what it measured: %+v", rec)
	}
	ran := false
	rec, err = r.Phase("forward", func() error { return broken }, func() error { ran = true; return nil })
	if ran || !errors.Is(err, broken) || !strings.Contains(rec.Error, "earlier work") {
		t.Errorf("ran %v, %v, %+v", ran, err, rec)
	}
	waits := 0
	_, err = r.Phase("forward", func() error {
		if waits++; waits == 2 {
			return broken
		}
		return nil
	}, func() error { return nil })
	if !errors.Is(err, broken) {
		t.Errorf("second wait: %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		r.Phase("panics", nil, func() error { panic("bug") })
	}()
	if rec, _ := r.Phase("next", nil, func() error { return nil }); rec.Depth != 0 {
		t.Errorf("a panic left its phase open: depth %d", rec.Depth)
	}
	if n := len(r.Phases()); n != 5 {
		t.Errorf("%d phases kept, want 5", n)
	}
}

func TestStopAndMarks(t *testing.T) {
	r := New(Options{Clock: ticking()})
	f := &fake{}
	r.Attach(f)
	r.Step(0)
	f.alloc(100, r.Tag(Label{Category: Parameter}))
	m := r.Mark("model")
	if m.AllocatedBytes != 512 || m.ReservedBytes != 512 || m.Event != 2 || m.Time == 0 || m.ByCategory[Parameter] != 512 {
		t.Errorf("mark %+v", m)
	}
	r.Stop()
	f.alloc(100, 0)
	r.Mark("late")
	r.Step(1)
	r.Loss(1)
	if len(r.Marks()) != 1 || len(r.Steps()) != 1 || r.Usage().AllocatedBytes != 512 || r.Recorded() != 2 || r.Steps()[0].Loss != nil {
		t.Errorf("recorded after Stop: %+v %+v", r.Marks(), r.Steps())
	}
}

func TestSeriesByTime(t *testing.T) {
	var now time.Duration
	r := New(Options{Clock: func() time.Duration { return now }})
	f := &fake{}
	r.Attach(f)
	input, activation := r.Tag(Label{Category: Input}), r.Tag(Label{Category: Activation})
	a := f.alloc(1024, input)
	now = 10 * time.Second
	b := f.alloc(4096, activation) // a spike of no duration
	f.free(b, 4096, activation)
	now = 90 * time.Second
	f.free(a, 1024, input)
	now = 100 * time.Second
	f.free(f.alloc(512, input), 512, input)
	s := r.Series(ByTime, 20)
	if s.Axis != ByTime || len(s.Columns) != 20 || s.Began != 0 || s.Ended != 100*time.Second {
		t.Fatalf("series %+v", s)
	}
	for i, c := range s.Columns {
		want := int64(1024) // lasts through columns without an event
		switch {
		case i == 2:
			want = 5120
		case i == 19:
			want = 512
		}
		if c.AllocatedBytes != want || c.ByCategory.Total() != want {
			t.Errorf("column %d: %+v, want %d", i, c, want)
		}
	}
	if s.Columns[2].ByCategory[Activation] != 4096 || s.Columns[2].Time != 10*time.Second {
		t.Errorf("spike %+v", s.Columns[2])
	}
}

func TestCategoryText(t *testing.T) {
	if n := len(Categories()); n != NumCategories {
		t.Fatalf("%d of %d categories in stacking order", n, NumCategories)
	}
	seen := map[Category]bool{}
	for _, c := range Categories() {
		var back Category
		text, err := c.MarshalText()
		if err != nil || back.UnmarshalText(text) != nil || back != c || seen[c] {
			t.Errorf("%v: %s, %v, back %v", c, text, err, back)
		}
		seen[c] = true
	}
	var c Category
	if err := c.UnmarshalText([]byte("weights")); err == nil || !strings.Contains(err.Error(), "optimizer_state") {
		t.Errorf("error %v", err)
	}
	by := ByCategory{Other: 1, Gradient: 3, Parameter: 2}
	data, err := json.Marshal(by)
	if err != nil || string(data) != `{"parameter":2,"gradient":3,"other":1}` {
		t.Errorf("%s, %v", data, err)
	}
	var back ByCategory
	if err := json.Unmarshal(data, &back); err != nil || back != by {
		t.Errorf("%+v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`{"weights":1}`), &back); err == nil {
		t.Error("an unknown category was read")
	}
}
