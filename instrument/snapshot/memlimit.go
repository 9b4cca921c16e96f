package snapshot

import (
	"math"
	"runtime"
	"runtime/debug"
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
		if free := max(limit-int64(m.Sys-m.HeapReleased-m.HeapIdle), 0); free < left {
			left, name = free, "GOMEMLIMIT"
			if boundBy != "" {
				name = boundBy
			}
		}
	}
	return left, name
}

// forReading is the part of what is left that reading may build: growing
// slices and the collector take as much again, and what follows some.
func forReading() (limit int64, name string) {
	left, name := memoryLeft()
	if left == math.MaxInt64 {
		return 0, ""
	}
	return max(left*2/7, 1), name
}
