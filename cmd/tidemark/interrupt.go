package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
)

// grace is how long the program has, after a signal, to end by itself and keep
// what it has. What does not end by then is cut off.
const grace = 700 * time.Millisecond

// interruption ends the program after a signal. Commands that heed their
// context end by themselves, in order. Whatever else goes on, a long
// calculation or a read that waits for a pipe, is cut off when the grace is
// over, unless something is being kept: then as soon as that is done.
type interruption struct {
	mu    sync.Mutex
	keeps int            // what must not be cut off
	undo  map[int]func() // what is to be done before the program is
	next  int
	due   bool // the grace is over
	exit  func(int)
}

type interruptionKey struct{}

// interruptible is a context that ends with Ctrl-C, SIGTERM, or SIGHUP unless
// the program was started to outlive it (nohup). A second Ctrl-C ends the
// program at once.
func interruptible(say func()) context.Context {
	i := &interruption{undo: map[int]func(){}, exit: func(code int) { say(); os.Exit(code) }}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), interruptionKey{}, i))
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	came := make(chan os.Signal, 1)
	signal.Notify(came, signals...)
	// A reader that has left (| head -1) is an error of writing, and no reason
	// to drop what is to be saved.
	signal.Ignore(syscall.SIGPIPE)
	go func() {
		<-came
		cancel()
		over := time.After(grace)
		for {
			select {
			case s := <-came:
				if s == os.Interrupt {
					os.Exit(shell.ExitInterrupted)
				}
			case <-over:
				i.end()
			}
		}
	}()
	return ctx
}

// end ends the program, now or when nothing is being kept.
func (i *interruption) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.due = true
	i.endIfDue()
}

func (i *interruption) endIfDue() {
	if !i.due || i.keeps > 0 {
		return
	}
	for _, undo := range i.undo {
		undo()
	}
	i.exit(shell.ExitInterrupted)
}

// keep says that what the program does must not be cut off until done is
// called, because it ends by itself soon or leaves half a thing otherwise.
func keep(ctx context.Context) (done func()) {
	i, ok := ctx.Value(interruptionKey{}).(*interruption)
	if !ok {
		return func() {}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keeps++
	return sync.OnceFunc(func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.keeps--
		i.endIfDue()
	})
}

// undoing calls undo if the program is cut off, or when done is called.
func undoing(ctx context.Context, undo func()) (done func()) {
	i, ok := ctx.Value(interruptionKey{}).(*interruption)
	if !ok {
		return undo
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	n := i.next
	i.next++
	i.undo[n] = undo
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.undo, n)
		undo()
	}
}
