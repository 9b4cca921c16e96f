package train_test

import (
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/models"
	"github.com/tidemark-lab/tidemark/train/conformance"
)

func parse(t *testing.T, data []byte) models.Config {
	t.Helper()
	c, err := models.ParseConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The golden trainings, with every way of doing them.
func TestGoldenTrainings(t *testing.T) {
	for _, g := range conformance.Goldens(t, "testdata") {
		for _, dt := range []device.DType{device.Float64, device.Float32, device.BFloat16} {
			if g.Name == "qwen2 as recorded" && dt != device.Float64 {
				continue // the others are compared with the record anyway
			}
			for _, run := range goldenRuns(dt) {
				t.Run(g.Name+"/"+run.String(), func(t *testing.T) {
					dev := device.NewCPU(alloc.Config{})
					defer dev.Close()
					g.Train(t, dev, run)
				})
			}
		}
	}
}

func goldenRuns(dt device.DType) (runs []conformance.GoldenRun) {
	for _, checkpointing := range []bool{false, true} {
		for _, micro := range []int{1, 3} {
			for _, optimizer := range []string{"adamw", "adamw-fused", "adamw-loop"} {
				for _, composition := range []nn.Composition{nn.Fused, nn.Eager} {
					if composition == nn.Eager && (optimizer != "adamw" || dt == device.BFloat16) {
						continue // the optimizer does not know how gradients were made
					}
					runs = append(runs, conformance.GoldenRun{DType: dt, GradientCheckpointing: checkpointing, MicroBatches: micro,
						Optimizer: optimizer, Composition: composition})
				}
			}
		}
	}
	return runs
}

func TestGoldenConfigHasEveryParameter(t *testing.T) {
	for _, g := range conformance.Goldens(t, "testdata") {
		g.Complete(t)
	}
}

// readFloats is a tensor of the cpu device as float64.
func readFloats(x device.Tensor) []float64 {
	if x.DType == device.Float64 {
		return x.Float64s()
	}
	y := make([]float64, x.Elements())
	for i, v := range x.Float32s() {
		y[i] = float64(v)
	}
	return y
}

var (
	compare     = conformance.Compare
	floatBytes  = device.FloatBytes
	appendToken = conformance.AppendToken
)
