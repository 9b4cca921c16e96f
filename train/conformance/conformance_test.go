package conformance

import (
	"slices"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
)

func TestCPU(t *testing.T) {
	dev := device.NewCPU(alloc.Config{})
	Run(t, dev, device.Float64, device.Float32, device.BFloat16)
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}

// Every operation that there are reference values of has a case.
func TestGoldenIsComplete(t *testing.T) {
	var have []string
	for _, c := range Cases() {
		have = append(have, c.Golden)
	}
	for _, name := range goldenNames(golden(t)) {
		if !slices.Contains(have, name) {
			t.Errorf("no case is compared with the reference values of %s", name)
		}
	}
}
