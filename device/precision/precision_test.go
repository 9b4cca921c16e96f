package precision

import (
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
)

func TestTable(t *testing.T) {
	for p, want := range map[Precision]struct {
		parameters, storage device.DType
		products            Products
		mixed, trained      bool
	}{
		"":        {device.Float32, device.Float32, Exact, false, true},
		FP32:      {device.Float32, device.Float32, Exact, false, true},
		TF32:      {device.Float32, device.Float32, Rounded11, false, true},
		BF16Mixed: {device.Float32, device.BFloat16, Exact, true, true},
		BF16:      {device.BFloat16, device.BFloat16, Exact, false, false},
	} {
		if p.Parameters() != want.parameters || p.Storage() != want.storage || p.Products() != want.products ||
			p.Mixed() != want.mixed || (p.Trained() == nil) != want.trained {
			t.Errorf("%q: %+v", p, p.row())
		}
	}
	for _, p := range All() {
		if again, err := Parse(string(p)); err != nil || again != p || !strings.Contains(Names(), string(p)) {
			t.Errorf("%s is read as %s, %v", p, again, err)
		}
	}
}

// A name of before is not taken for another thing: the error says the right one.
func TestFormerNames(t *testing.T) {
	for name, want := range map[string]string{
		"amp": "its name here is bf16-mixed", "float32": "its name here is fp32", "BFLOAT16": "its name here is bf16",
		"fp16": "it is fp32, tf32, bf16-mixed or bf16", "": "it is fp32, tf32, bf16-mixed or bf16",
	} {
		if p, err := Parse(name); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q is %q, %v; want an error with %q", name, p, err, want)
		}
	}
}
