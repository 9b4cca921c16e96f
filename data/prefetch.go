package data

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// PrefetchOptions says how far and how busily batches are prepared ahead.
type PrefetchOptions struct {
	// Workers is the number of goroutines that prepare batches; 0 means 1.
	Workers int
	// Depth is the number of batches prepared ahead of the one in use; 0 means
	// twice the workers. Memory is that of Depth+1 batches.
	Depth int
}

// Prefetcher hands out a source's batches in order while goroutines prepare
// the next ones.
type Prefetcher struct {
	ctx    context.Context
	cancel context.CancelFunc
	wait   sync.WaitGroup
	free   chan *slot // batches that nobody uses
	order  chan *slot // batches begun, in order
	held   *slot      // what Next returned last
	err    error      // what Next returns from now on
}

// slot is a batch on its way.
type slot struct {
	index int
	batch Batch
	err   error
	done  chan struct{}
}

// Prefetch begins to prepare batches from number first on. It ends when the
// source does, when ctx is done or when Close is called; Close must be called
// in any case.
func Prefetch(ctx context.Context, src Source, first int, opts PrefetchOptions) *Prefetcher {
	workers := max(opts.Workers, 1)
	depth := opts.Depth
	if depth < 1 {
		depth = 2 * workers
	}
	// Each channel has room for every slot, so only free ever makes a
	// goroutine wait.
	slots := depth + 1
	p := &Prefetcher{free: make(chan *slot, slots), order: make(chan *slot, slots)}
	p.ctx, p.cancel = context.WithCancel(ctx)
	for range slots {
		p.free <- &slot{done: make(chan struct{}, 1)}
	}
	work := make(chan *slot, slots)
	p.wait.Go(func() {
		defer close(work)
		defer close(p.order)
		for i := first; src.Len() < 0 || i < src.Len(); i++ {
			select {
			case s := <-p.free:
				s.index = i
				p.order <- s
				work <- s
			case <-p.ctx.Done():
				return
			}
		}
	})
	for range workers {
		p.wait.Go(func() {
			for s := range work {
				if s.err = p.ctx.Err(); s.err == nil {
					s.err = src.Batch(s.index, &s.batch)
				}
				s.done <- struct{}{}
			}
		})
	}
	return p
}

// Next returns the next batch, which is the caller's until the next call. After
// the source's last batch it returns io.EOF. An error of the source comes in
// the place of its batch, and stays.
func (p *Prefetcher) Next() (*Batch, error) {
	if p.held != nil {
		p.free <- p.held
		p.held = nil
	}
	if p.err != nil {
		return nil, p.err
	}
	s, err := p.next()
	if err != nil {
		p.err = err
		p.cancel()
		return nil, err
	}
	p.held = s
	return &s.batch, nil
}

func (p *Prefetcher) next() (*slot, error) {
	if err := p.ctx.Err(); err != nil {
		return nil, err
	}
	var s *slot
	select {
	case s = <-p.order:
	case <-p.ctx.Done():
		return nil, p.ctx.Err()
	}
	if s == nil { // the channel is closed
		if err := p.ctx.Err(); err != nil {
			return nil, err
		}
		return nil, io.EOF
	}
	select {
	case <-s.done:
	case <-p.ctx.Done():
		return nil, p.ctx.Err()
	}
	if s.err != nil {
		return nil, fmt.Errorf("prepare batch %d: %w", s.index, s.err)
	}
	return s, nil
}

// Close ends the preparation and waits until no goroutine of it is left. It may
// be called more than once, but not while Next runs.
func (p *Prefetcher) Close() {
	p.cancel()
	p.wait.Wait()
}
