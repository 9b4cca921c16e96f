//go:build gpu

package cuda

import (
	"errors"
	"fmt"
	"time"

	"gorgonia.org/cu"

	"github.com/tidemark-lab/tidemark/device"
)

var _ device.Timer = (*Device)(nil)

// timings are the timings that were made so far. They are used again, since
// making an event takes longer than what is timed by some.
type timings struct {
	made, spare []*timing
}

// timing is a pair of events on the device's stream.
type timing struct {
	d          *Device
	start, end cu.Event
	stopped    bool
}

var errClosed = errors.New("the device is closed")

// StartTiming queues an event that notes the card's time.
func (d *Device) StartTiming() (device.Timing, error) {
	if d.closed {
		return nil, fmt.Errorf("starting a timing: %w", errClosed)
	}
	t, err := d.timing()
	if err == nil {
		err = d.submit()
	}
	if err == nil {
		err = d.do(func() error { return t.start.Record(d.stream) })
	}
	if err != nil {
		return nil, fmt.Errorf("starting a timing: %w", err)
	}
	return t, nil
}

// timing is a timing that nobody uses.
func (d *Device) timing() (*timing, error) {
	s := &d.timings
	if n := len(s.spare); n > 0 {
		t := s.spare[n-1]
		s.spare = s.spare[:n-1]
		t.stopped = false
		return t, nil
	}
	t := &timing{d: d}
	err := d.do(func() (err error) {
		if t.start, err = cu.MakeEvent(0); err != nil {
			return err
		}
		if t.end, err = cu.MakeEvent(0); err != nil {
			return errors.Join(err, cu.DestroyEvent(&t.start))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.made = append(s.made, t)
	return t, nil
}

// Stop queues the second event.
func (t *timing) Stop() error {
	if t.d.closed {
		return fmt.Errorf("stopping a timing: %w", errClosed)
	}
	err := t.d.submit()
	if err == nil {
		err = t.d.do(func() error { return t.end.Record(t.d.stream) })
	}
	if err != nil {
		return fmt.Errorf("stopping a timing: %w", err)
	}
	t.stopped = true
	return nil
}

// Elapsed is the time between the events, to about half a microsecond.
func (t *timing) Elapsed() (time.Duration, error) {
	switch {
	case t.d.closed:
		return 0, fmt.Errorf("reading a timing: %w", errClosed)
	case !t.stopped:
		return 0, errors.New("reading a timing: it was not stopped, or read before")
	}
	var milliseconds float64
	err := t.d.do(func() (err error) {
		milliseconds, err = t.start.Elapsed(t.end)
		if errors.Is(err, cu.NotReady) {
			if err = t.end.Synchronize(); err == nil {
				milliseconds, err = t.start.Elapsed(t.end)
			}
		}
		return err
	})
	t.stopped = false
	t.d.timings.spare = append(t.d.timings.spare, t)
	if err != nil {
		return 0, fmt.Errorf("reading a timing: %w", err)
	}
	return time.Duration(milliseconds * float64(time.Millisecond)), nil
}

func (s *timings) close() error {
	var errs []error
	for _, t := range s.made {
		errs = append(errs, cu.DestroyEvent(&t.start), cu.DestroyEvent(&t.end))
	}
	*s = timings{}
	return errors.Join(errs...)
}
