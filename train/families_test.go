package train_test

import (
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/data/safetensors"
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train/conformance"
)

// TestFamiliesHaveTheirValues compares tiny models of each family with
// transformers' in both compositions.
func TestFamiliesHaveTheirValues(t *testing.T) {
	predicted := map[string]bool{"phi3": true, "gpt_neox": true, "gpt_neox_serial": true, "gemma2": true} // whose eager composition computes nothing
	conformance.Families(t, "testdata", func(name string, f *safetensors.File, c models.Config) {
		for _, composition := range []nn.Composition{nn.Fused, nn.Eager} {
			t.Run(name+"/"+composition.String(), func(t *testing.T) {
				dev := device.NewCPU(alloc.Config{})
				defer dev.Close()
				err := conformance.FamilyValues(t, dev, name, f, c, composition)
				switch {
				case predicted[name] && composition == nn.Eager:
					if err == nil || !strings.Contains(err.Error(), "use the fused composition") {
						t.Errorf("it computes, or fails otherwise: %v", err)
					}
				case err != nil:
					t.Fatal(err)
				}
			})
		}
	})
}
