package main

import (
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/device/cuda"
)

// openCUDA opens a GPU; the error wraps device.ErrAbsent where there is none.
func openCUDA(n int, config alloc.Config) (device.Device, error) {
	d, err := cuda.Open(n, cuda.Options{Alloc: config})
	if err != nil {
		return nil, err
	}
	return d, nil
}
