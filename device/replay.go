package device

// Replayer is a device that can submit work that repeats as one piece, which
// costs the host less than submitting call after call.
type Replayer interface {
	// NewReplay prepares for one piece of work.
	NewReplay() Replay
}

// Replay is a piece of work that is submitted again and again.
type Replay interface {
	// Run runs f, and submits the calls that f made when f has returned, or
	// earlier where f waits for them. What is computed is the same as by f alone;
	// allocations are made as f makes them. Errors of submitting come back here.
	Run(f func() error) error
	// Close forgets the work; Run can begin again. The device may be closed
	// already.
	Close()
}

// Through runs f through a replay, or alone where that is nil.
func Through(r Replay, f func() error) error {
	if r == nil {
		return f()
	}
	return r.Run(f)
}
