//go:build gpu

package cuda_test

import (
	"errors"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/cuda"
	"github.com/tidemark-lab/tidemark/train/conformance"
)

// TestConformance runs the suite that every device passes.
func TestConformance(t *testing.T) {
	d, err := cuda.Open(0, cuda.Options{})
	if errors.Is(err, device.ErrAbsent) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	conformance.Run(t, d, device.Float32, device.Float64, device.BFloat16)
}
