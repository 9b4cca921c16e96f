//go:build gpu

package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"gorgonia.org/cu"

	"github.com/tidemark-lab/tidemark/device"
)

// profile times calls with events on the stream. A pair of events a call costs
// the host a few microseconds, so launch-bound work looks slower with it.
type profile struct {
	out     io.Writer
	waiting []timedCall
	spare   []cu.Event
	tuned   bool // the call at hand tried algorithms: its time is not counted
	times   map[string]*callTime
}

type timedCall struct {
	name       string
	start, end cu.Event
}

// callTime is what the calls of one kernel and shape took together.
type callTime struct {
	calls        int
	milliseconds float64
}

// most calls that wait to be read, which bounds the number of events
const profileBatch = 4096

// callName is a call's kernel and, for those that are worth telling apart, its
// shape.
func callName(c *device.Call) string {
	if strings.HasPrefix(c.Kernel, "linear.") || strings.HasPrefix(c.Kernel, "attention") ||
		strings.HasPrefix(c.Kernel, "cross_entropy") {
		return fmt.Sprint(c.Kernel, " ", c.Attributes)
	}
	return c.Kernel
}

func (d *Device) event() (cu.Event, error) {
	p := d.profile
	if n := len(p.spare); n > 0 {
		e := p.spare[n-1]
		p.spare = p.spare[:n-1]
		return e, nil
	}
	var e cu.Event
	err := d.do(func() (err error) {
		e, err = cu.MakeEvent(0)
		return err
	})
	return e, err
}

// timed runs a call between two events.
func (d *Device) timed(c *device.Call, f func(*Device, *device.Call) error) error {
	start, err1 := d.event()
	end, err2 := d.event()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := d.do(func() error { return start.Record(d.stream) }); err != nil {
		return err
	}
	if err := f(d, c); err != nil {
		return err
	}
	if err := d.do(func() error { return end.Record(d.stream) }); err != nil {
		return err
	}
	p := d.profile
	if p.tuned {
		p.tuned = false
		p.spare = append(p.spare, start, end)
		return nil
	}
	p.waiting = append(p.waiting, timedCall{callName(c), start, end})
	if len(p.waiting) >= profileBatch {
		return d.readProfile()
	}
	return nil
}

// readProfile waits for the calls so far and adds up their times.
func (d *Device) readProfile() error {
	p := d.profile
	if err := d.Synchronize(); err != nil {
		return err
	}
	for _, w := range p.waiting {
		var ms float64
		err := d.do(func() (err error) {
			ms, err = w.start.Elapsed(w.end)
			return err
		})
		if err != nil {
			return err
		}
		t := p.times[w.name]
		if t == nil {
			t = &callTime{}
			p.times[w.name] = t
		}
		t.calls++
		t.milliseconds += ms
		p.spare = append(p.spare, w.start, w.end)
	}
	p.waiting = p.waiting[:0]
	return nil
}

// closeProfile prints the table, the largest first.
func (d *Device) closeProfile() error {
	p := d.profile
	if p == nil {
		return nil
	}
	err := d.readProfile()
	for i := range p.spare {
		err = errors.Join(err, cu.DestroyEvent(&p.spare[i]))
	}
	total := 0.0
	names := make([]string, 0, len(p.times))
	for n, t := range p.times {
		total += t.milliseconds
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(p.times[b].milliseconds, p.times[a].milliseconds) })
	fmt.Fprintf(p.out, "%10s %6s %8s %10s  call\n", "ms", "%", "calls", "us/call")
	for _, n := range names {
		t := p.times[n]
		fmt.Fprintf(p.out, "%10.3f %6.2f %8d %10.2f  %s\n", t.milliseconds, 100*t.milliseconds/total, t.calls,
			1000*t.milliseconds/float64(t.calls), n)
	}
	fmt.Fprintf(p.out, "%10.3f in all calls\n", total)
	d.profile = nil
	return err
}
