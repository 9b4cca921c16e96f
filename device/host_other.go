//go:build !linux

package device

import "runtime"

// totalMemory is the machine's memory in bytes, 0 if it cannot be told.
func totalMemory() int64 { return 0 }

// processor is the processor's architecture.
func processor() string { return runtime.GOARCH }
