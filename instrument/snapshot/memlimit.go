package snapshot

import (
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

var (
	boundOnce sync.Once
	boundBy   string // what the system's limit is, once BoundMemory has passed it on
)

// BoundMemory passes on the limit that the system sets on this process's
// memory (ulimit, control groups), if there is one, to Go's garbage collector,
// which by itself knows GOMEMLIMIT only and ends the program when the system
// refuses more. It is for programs to call before they read large files.
func BoundMemory() {
	boundOnce.Do(func() {
		left, name := systemMemory()
		if left == math.MaxInt64 {
			return
		}
		if strings.HasPrefix(name, "ulimit") {
			// A thread takes address space that it never uses, and Go ends the
			// program that cannot have another.
			runtime.GOMAXPROCS(1)
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if limit := int64(m.Sys-m.HeapReleased) + left*3/4; limit < debug.SetMemoryLimit(-1) {
			debug.SetMemoryLimit(limit)
			boundBy = name
		}
	})
}

// memoryLeft is what this process may take yet, in bytes, by GOMEMLIMIT and by
// what the system sets, and the name of the limit; MaxInt64 for no limit.
func memoryLeft() (left int64, name string) {
	left, name = systemMemory()
	limit := debug.SetMemoryLimit(-1)
	if left == math.MaxInt64 && limit == math.MaxInt64 {
		return left, ""
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if left < math.MaxInt64 {
		left += int64(m.HeapIdle - m.HeapReleased)
	}
	if limit < math.MaxInt64 {
		if free := max(limit-int64(m.Sys-m.HeapIdle), 0); free < left {
			left, name = free, "GOMEMLIMIT"
			if boundBy != "" {
				name = boundBy
			}
		}
	}
	return left, name
}

const (
	steps     = 320 << 20 // Go and its threads take address space in steps
	smallFile = 24 << 20  // what a file of ordinary size builds at most
)

// forReading is the part of what is left that reading may build: growing
// slices and the collector take as much again, and what follows some.
func forReading() (limit int64, name string) {
	left, name := memoryLeft()
	switch {
	case left == math.MaxInt64:
		return 0, ""
	case strings.HasPrefix(name, "ulimit"):
		return max((left-steps)*2/7, min(left/12, smallFile), 1<<20), name
	}
	return max(left*2/7, 1<<20), name
}
