//go:build gpu

package cuda_test

import (
	"testing"

	"github.com/tidemark-lab/tidemark/data/safetensors"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train/conformance"
)

// TestFamiliesHaveTheirValues compares tiny models of each family with
// transformers'.
func TestFamiliesHaveTheirValues(t *testing.T) {
	conformance.Families(t, "../../train/testdata", func(name string, f *safetensors.File, c models.Config) {
		t.Run(name, func(t *testing.T) {
			if err := conformance.FamilyValues(t, openCard(t, alloc.Config{}), name, f, c, nn.Fused); err != nil {
				t.Fatal(err)
			}
		})
	})
}
