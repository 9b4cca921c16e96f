//go:build !gpu

package main

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
)

// openCUDA says what is missing.
func openCUDA(int, alloc.Config) (device.Device, error) {
	return nil, fmt.Errorf("this program was built without GPU support (build it with -tags gpu: make gpu): %w", device.ErrAbsent)
}
