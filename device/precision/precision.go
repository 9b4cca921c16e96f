// Package precision is the table of the precisions that a training can be in: in
// what types values are stored, parameters kept and products computed. Flags,
// reports and JSON call them by the names of this table.
package precision

import (
	"fmt"
	"strings"

	"github.com/tidemark-lab/tidemark/device"
)

// Precision is a precision by its name; the zero value is FP32.
type Precision string

// The precisions.
const (
	// FP32 has everything in float32.
	FP32 Precision = "fp32"
	// TF32 is FP32 but for products of matrices, whose operands a GPU rounds to
	// 11 bits.
	TF32 Precision = "tf32"
	// BF16Mixed has bfloat16 over float32 parameters, gradients and optimizer
	// state: as PyTorch's autocast in the eager composition, with all activations
	// in bfloat16 in the fused one.
	BF16Mixed Precision = "bf16-mixed"
	// BF16 has everything in bfloat16, parameters, gradients and state too.
	BF16 Precision = "bf16"
)

// Products is what the operands of products of float32 matrices are rounded to.
// Sums, and everything else, are float32 in any case.
type Products int

// The products, with the relative error of one. The numbers are those of
// device/cuda's C.
const (
	Exact     Products = iota // no rounding: 1e-7
	Rounded11                 // 11 bits: near 3e-4
)

// row is what a precision is.
type row struct {
	name       Precision
	parameters device.DType // and their gradients and the optimizer's state
	storage    device.DType // of activations
	products   Products
	trained    bool // here, on devices; else only predicted
	text       string
}

var rows = []row{
	{FP32, device.Float32, device.Float32, Exact, true, "everything float32"},
	{TF32, device.Float32, device.Float32, Rounded11, true, "float32; a GPU's products of float32 matrices round their operands to 11 bits"},
	{BF16Mixed, device.Float32, device.BFloat16, Exact, true, "mixed precision (activations bfloat16, weights float32)"},
	{BF16, device.BFloat16, device.BFloat16, Exact, false, "everything bfloat16, weights and optimizer state too"},
}

// formerly are other names, for an error that says the right one.
var formerly = map[string]Precision{
	"amp": BF16Mixed, "mixed": BF16Mixed, "autocast": BF16Mixed, "bf16_mixed": BF16Mixed,
	"float32": FP32, "bfloat16": BF16,
}

func (p Precision) row() row {
	for _, r := range rows {
		if r.name == p {
			return r
		}
	}
	return rows[0]
}

// All lists the precisions.
func All() []Precision {
	names := make([]Precision, len(rows))
	for i, r := range rows {
		names[i] = r.name
	}
	return names
}

// Names lists their names, for a sentence.
func Names() string { return names(func(row) bool { return true }) }

func names(which func(row) bool) string {
	var list []string
	for _, r := range rows {
		if which(r) {
			list = append(list, string(r.name))
		}
	}
	if len(list) == 1 {
		return list[0]
	}
	return strings.Join(list[:len(list)-1], ", ") + " or " + list[len(list)-1]
}

// Usage says what each precision is.
func Usage() string {
	var list []string
	for _, r := range rows {
		list = append(list, fmt.Sprintf("%s: %s", r.name, r.text))
	}
	return strings.Join(list, "; ")
}

// Parse reads a name.
func Parse(name string) (Precision, error) {
	for _, r := range rows {
		if string(r.name) == name {
			return r.name, nil
		}
	}
	if now, ok := formerly[strings.ToLower(name)]; ok {
		return "", fmt.Errorf("precision %q: its name here is %s", name, now)
	}
	return "", fmt.Errorf("precision %q: it is %s", name, Names())
}

// OrDefault is the precision with FP32 for the zero value.
func (p Precision) OrDefault() Precision {
	if p == "" {
		return FP32
	}
	return p
}

// Parameters is the type of parameters, their gradients and the optimizer's state.
func (p Precision) Parameters() device.DType { return p.row().parameters }

// Storage is the type of activations: in the eager composition, of those that
// autocast makes.
func (p Precision) Storage() device.DType { return p.row().storage }

// Mixed says that activations are narrower than parameters.
func (p Precision) Mixed() bool { r := p.row(); return r.storage != r.parameters }

// Products is how products of float32 matrices are computed.
func (p Precision) Products() Products { return p.row().products }

// Text says what the precision is.
func (p Precision) Text() string { return p.row().text }

// Trained fails for a precision that is only predicted.
func (p Precision) Trained() error {
	if p.row().trained {
		return nil
	}
	return fmt.Errorf("precision %s: %s is predicted (estimate), not trained; it is %s, and %s trains with bfloat16 activations over float32 weights",
		p, p.row().text, names(func(r row) bool { return r.trained }), BF16Mixed)
}
