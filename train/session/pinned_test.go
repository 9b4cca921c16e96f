package session_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/train/session"
)

// TestPinnedSegmentsAreNamed leaves a little in each of several segments of 40
// MiB and then asks for more than one of them has.
func TestPinnedSegmentsAreNamed(t *testing.T) {
	const mib, segment = 1 << 20, 40 << 20
	for _, c := range []struct {
		name     string
		kept     []int // bytes in each segment
		recorded bool
		config   alloc.Config
		pinned   int
		want     string // "" for nothing about segments
	}{
		{"three", []int{2 * mib, 2 * mib, 2 * mib}, true, alloc.Config{}, 3,
			"; 3 segments of 125829120 bytes are nearly empty but kept by 7602176 in use: " +
				"41943040 by 2097152 of model.layers.0.mlp (linear.forward, activation), " +
				"41943040 by 2097152 of model.layers.1.mlp (linear.forward, activation), " +
				"41943040 by 2097152 of model.layers.2.mlp (linear.forward, activation) and 1310720 of others" +
				"; to need less: the allocator's expandable_segments:True"},
		{"five", []int{2 * mib, 2 * mib, 2 * mib, 2 * mib, 2 * mib}, true, alloc.Config{}, 5,
			"and 2 more; to need less"},
		{"one of two", []int{2 * mib, 5 * mib}, true, alloc.Config{}, 1,
			"; 1 segment of 41943040 bytes is nearly empty but kept by 2097152 in use: " +
				"41943040 by 2097152 of model.layers.0.mlp (linear.forward, activation); to need less"},
		{"not in pieces", []int{2 * mib}, true, alloc.Config{}, 0, ""},
		{"without a recorder", []int{2 * mib, 2 * mib}, false, alloc.Config{}, 2,
			"; 2 segments of 83886080 bytes are nearly empty but kept by 5505024 in use: 41943040 by 2097152 at 0x"},
		{"more than a tenth", []int{4*mib + 512, 5 * mib, 6 * mib}, true, alloc.Config{}, 0, ""},
		{"pages are given back", []int{2 * mib, 2 * mib, 2 * mib}, true, alloc.Config{ExpandableSegments: true}, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.config.LimitBytes = int64(len(c.kept)) * segment
			c.config.AddressOrder = true
			dev := device.NewMeta(c.config)
			rec := recorderOf(dev, c.recorded)
			s := session.New(dev, rec, session.Options{})
			try := func(bytes int, module, op string, category instrument.Category) (*session.Value, error) {
				return s.Allocate(device.Spec{DType: device.Uint8, Shape: []int{bytes}},
					instrument.Label{Category: category, Module: module, Op: op})
			}
			take := func(bytes int, module, op string, category instrument.Category) *session.Value {
				t.Helper()
				v, err := try(bytes, module, op, category)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			var fillers []*session.Value
			for i, kept := range c.kept {
				take(segment, "", "whole", instrument.Temporary).Release()
				take(kept, fmt.Sprintf("model.layers.%d.mlp", i), "linear.forward", instrument.Activation)
				left := segment - kept
				if i == len(c.kept)-1 {
					take(mib+mib/4, "model.norm", "weight", instrument.Parameter)
					left -= mib + mib/4
				}
				fillers = append(fillers, take(left, "", "filler", instrument.Temporary))
			}
			for _, v := range fillers {
				v.Release()
			}
			_, err := try(segment-mib, "model.lm_head", "linear.forward", instrument.Activation)
			var e *session.AllocationError
			if c.config.ExpandableSegments {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.As(err, &e) {
				t.Fatalf("error %v, want out of memory", err)
			}
			msg := err.Error()
			if !strings.Contains(msg, c.want) || c.want == "" && strings.Contains(msg, "segments of") || strings.Contains(msg, "\n") {
				t.Errorf("%q, want %q", msg, c.want)
			}
			checkPinned(t, e, c.pinned, segment, c.recorded)
		})
	}
}

// recorderOf is a recorder that listens to a device, nil without one.
func recorderOf(dev device.Device, recorded bool) *instrument.Recorder {
	if !recorded {
		return nil
	}
	rec := instrument.New(instrument.Options{NoTiming: true})
	rec.Attach(dev.Allocator())
	return rec
}

// checkPinned looks at the segments that an error names: how many, how large, and
// whether what is in them is known.
func checkPinned(t *testing.T, e *session.AllocationError, want int, segment int64, known bool) {
	t.Helper()
	if len(e.Pinned) != want {
		t.Fatalf("%d pinned segments, want %d", len(e.Pinned), want)
	}
	for _, p := range e.Pinned {
		var sum int64
		for _, h := range p.Holders {
			sum += h.Bytes
			if h.Known != known {
				t.Errorf("holder %+v", h)
			}
		}
		if p.Bytes != segment || sum != p.InUseBytes {
			t.Errorf("segment %+v", p)
		}
	}
}
