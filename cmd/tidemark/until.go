package main

import "context"

// untilDone computes f, or ends with the context's error as soon as that is
// done: what f has begun then comes to nothing. It is for computations that
// leave nothing behind and ask the context themselves, though not at every
// moment.
func untilDone[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
