package device

import "time"

// Timer is a device that works behind the host and can time queued work by a
// clock of its own, without the host having to wait for it.
type Timer interface {
	// StartTiming queues the start of a timing after the work queued so far,
	// and returns at once.
	StartTiming() (Timing, error)
}

// Timing is the time between two points of a device's queue.
type Timing interface {
	// Stop queues the end after the work queued so far, and returns at once.
	Stop() error
	// Elapsed waits until the device has reached the end, and gives the time
	// that it took from the start, waits for the host included. It is called
	// once, after Stop: the device uses the timing again for another.
	Elapsed() (time.Duration, error)
}
