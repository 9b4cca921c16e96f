//go:build gpu

package cuda

import (
	"fmt"
	"strings"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// launchers queue a call's kernels, by Call.Kernel. Packages nn/op and optim
// document each kernel's operands, results and attributes.
var launchers = map[string]func(*Device, *device.Call) error{
	"fill":         func(d *Device, c *device.Call) error { return d.fill(c.Out[0], c.Attributes.(kernel.Scalar).Value) },
	"fill.normal":  fillRandomCall("normal"),
	"fill.uniform": fillRandomCall("uniform"),
	"copy":         func(d *Device, c *device.Call) error { return d.copy(c.In[0], c.Out[0]) },
	"cast":         func(d *Device, c *device.Call) error { return d.cast(c.In[0], c.Out[0], c.Accumulate) },
	"add":          elementwise2Call("add"),
	"scale":        scaleCall,
	"dropout":      dropoutCall,
	"positions":    func(d *Device, c *device.Call) error { return d.positions(c.Out[0]) },
	"slice.grad":   sliceGradCall,
	"concat":       concatCall,

	"first_token":      firstTokenCall,
	"first_token.grad": firstTokenGradCall,
	"token_types":      func(d *Device, c *device.Call) error { return d.zero(c.Out[0]) },

	"add_rows":      addRowsCall,
	"add_rows.grad": addRowsGradCall,

	"relu.forward":      elementwise1Call("relu_forward"),
	"relu.grad":         activationGradCall("relu_backward"),
	"gelu_tanh.forward": elementwise1Call("gelu_tanh_forward"),
	"gelu_tanh.grad":    activationGradCall("gelu_tanh_backward"),
	"gelu_erf.forward":  elementwise1Call("gelu_erf_forward"),
	"gelu_erf.grad":     activationGradCall("gelu_erf_backward"),
	"silu.forward":      elementwise1Call("silu_forward"),
	"silu.grad":         activationGradCall("silu_backward"),
	"tanh.forward":      elementwise1Call("tanh_forward"),
	"tanh.grad":         activationGradCall("tanh_backward"),
	"sigmoid.forward":   elementwise1Call("sigmoid_forward"),
	"sigmoid.grad":      activationGradCall("sigmoid_backward"),
	"softcap.forward":   softCapCall,
	"softcap.grad":      softCapGradCall,
	"swiglu.forward":    elementwise2Call("swiglu_forward"),
	"swiglu.grad_gate":  gateGradCall("swiglu_gate"),
	"swiglu.grad_up":    activationGradCall("swiglu_up"),
	"geglu.forward":     elementwise2Call("geglu_forward"),
	"geglu.grad_gate":   gateGradCall("geglu_gate"),
	"geglu.grad_up":     activationGradCall("geglu_up"),

	"linear.forward":     linearForwardCall,
	"linear.grad_input":  linearGradInputCall,
	"linear.grad_weight": linearGradWeightCall,
	"linear.grad_bias":   linearGradBiasCall,

	"layernorm.forward":     layernormForwardCall,
	"layernorm.grad_weight": layernormGradWeightCall,
	"layernorm.grad_bias":   layernormGradBiasCall,
	"layernorm.grad_input":  layernormGradInputCall,
	"rmsnorm.forward":       rmsnormForwardCall,
	"rmsnorm.grad_weight":   rmsnormGradWeightCall,
	"rmsnorm.grad_input":    rmsnormGradInputCall,
	"softmax.forward":       softmaxForwardCall,
	"softmax.grad":          softmaxGradCall,

	"cache.write":       cacheWriteCall,
	"embedding.forward": embeddingForwardCall,
	"embedding.grad":    embeddingGradCall,
	"rotary_table":      rotaryTableCall,
	"rope.forward":      ropeCall(false),
	"rope.backward":     ropeCall(true),

	"argmax":                    argmaxCall,
	"attention.decode":          attentionDecodeCall,
	"attention.forward":         attentionForwardCall,
	"attention.backward":        attentionBackwardCall,
	"attention_packed.forward":  attentionPackedForwardCall,
	"attention_packed.backward": attentionPackedBackwardCall,

	"cross_entropy.forward":  crossEntropyForwardCall,
	"cross_entropy.backward": crossEntropyBackwardCall,
	"mean.forward":           meanForwardCall,
	"mean.grad":              meanGradCall,
	"mse.forward":            mseForwardCall,
	"mse.grad":               mseGradCall,

	"grad_norm":           gradNormCall,
	"grad_clip":           gradClipCall,
	"adafactor.norm":      adafactorNormCall,
	"adafactor.rows":      adafactorRowsCall,
	"adafactor.columns":   adafactorColumnsCall,
	"adafactor.outer":     adafactorOuterCall,
	"adafactor.mean":      adafactorMeanCall,
	"adafactor.normalize": adafactorNormalizeCall,
	"adafactor.fused":     adafactorFusedCall,
}

func init() {
	for _, name := range kernel.OverLists() {
		launchers[name] = listsCall(strings.ReplaceAll(name, ".", "_"))
	}
}

func fillRandomCall(name string) func(*Device, *device.Call) error {
	return func(d *Device, c *device.Call) error {
		a := c.Attributes.(kernel.Fill)
		return d.random(name, c.Out[0], a.Seed, a.Stream, a.Scale)
	}
}

func elementwise1Call(name string) func(*Device, *device.Call) error {
	return func(d *Device, c *device.Call) error { return d.elementwise1(name, c.In[0], c.Out[0]) }
}

func elementwise2Call(name string) func(*Device, *device.Call) error {
	return func(d *Device, c *device.Call) error { return d.elementwise2(name, c.In[0], c.In[1], c.Out[0]) }
}

func activationGradCall(name string) func(*Device, *device.Call) error {
	return func(d *Device, c *device.Call) error {
		return d.activationBackward(name, c.In[0], c.In[1], c.Out[0], c.Accumulate)
	}
}

func gateGradCall(name string) func(*Device, *device.Call) error {
	return func(d *Device, c *device.Call) error {
		return d.gateGradient(name, c.In[0], c.In[1], c.In[2], c.Out[0], c.Accumulate)
	}
}

func scaleCall(d *Device, c *device.Call) error {
	name := "scale"
	if c.Accumulate {
		name = "axpy"
	}
	return d.scale(name, c.In[0], c.Out[0], c.Attributes.(kernel.Scalar).Value)
}

func softCapCall(d *Device, c *device.Call) error {
	return d.scale("softcap_forward", c.In[0], c.Out[0], c.Attributes.(kernel.Scalar).Value)
}

func softCapGradCall(d *Device, c *device.Call) error {
	return d.softCapBackward(c.In[0], c.In[1], c.Out[0], c.Attributes.(kernel.Scalar).Value, c.Accumulate)
}

func dropoutCall(d *Device, c *device.Call) error {
	a := c.Attributes.(kernel.Dropout)
	return d.dropout(c.In[0], c.Out[0], c.Seed, a.Stream(c.Pass), a.Probability, c.Accumulate)
}

// part is n elements of t from an offset on.
func part(t device.Tensor, offset, n int64) device.Tensor {
	t.Addr += uint64(offset * t.DType.Size())
	t.Shape = []int{int(n)}
	return t
}

// firstTokenCall: In x (B, T, C), Out (B, C).
func firstTokenCall(d *Device, c *device.Call) error { return d.firstTokens(c.In[0], c.Out[0], false) }

// firstTokenGradCall: In dy (B, C), Out dx (B, T, C), zero elsewhere.
func firstTokenGradCall(d *Device, c *device.Call) error {
	if err := d.zero(c.Out[0]); err != nil {
		return err
	}
	return d.firstTokens(c.Out[0], c.In[0], true)
}

// firstTokens copies the first positions of x (B, T, C) to rows (B, C), or back.
func (d *Device) firstTokens(x, rows device.Tensor, back bool) error {
	if len(x.Shape) != 3 || len(rows.Shape) != 2 || rows.Shape[0] != x.Shape[0] || rows.Shape[1] != x.Shape[2] {
		return fmt.Errorf("the first tokens of %v are not %v", x.Spec, rows.Spec)
	}
	tokens, width := int64(x.Shape[1]), int64(x.Shape[2])
	for r := range int64(x.Shape[0]) {
		from, to := part(x, r*tokens*width, width), part(rows, r*width, width)
		if back {
			from, to = to, from
		}
		if err := d.copy(from, to); err != nil {
			return err
		}
	}
	return nil
}

// sliceGradCall: In dy, Out dx, zero outside the slice.
func sliceGradCall(d *Device, c *device.Call) error {
	dy, dx, offset := c.In[0], c.Out[0], c.Attributes.(kernel.Slice).Offset
	n, total := dy.Elements(), dx.Elements()
	if offset < 0 || offset+n > total {
		return fmt.Errorf("a slice of %d elements at %d does not fit %v", n, offset, dx.Spec)
	}
	if c.Accumulate {
		return d.scale("axpy", dy, part(dx, offset, n), 1)
	}
	if err := d.zero(part(dx, 0, offset)); err != nil {
		return err
	}
	if err := d.copy(dy, part(dx, offset, n)); err != nil {
		return err
	}
	return d.zero(part(dx, offset+n, total-offset-n))
}

func concatCall(d *Device, c *device.Call) error {
	at := int64(0)
	for _, x := range c.In {
		n := x.Elements()
		if err := d.copy(x, part(c.Out[0], at, n)); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// addRowsCall: x (B, T·C) + p (T·C).
func addRowsCall(d *Device, c *device.Call) error {
	real, err := realOf(c.In[0].DType)
	if err != nil {
		return err
	}
	if err := need("what is added", c.In[1], real); err != nil {
		return err
	}
	rows, columns := rowsOf(c)
	return d.biasAdd(c.In[0], c.In[1], c.Out[0], rows, columns)
}

func addRowsGradCall(d *Device, c *device.Call) error {
	rows, columns := rowsOf(c)
	return d.columnSum(c.In[0], c.Out[0], d.scratch(c, c.Out[0].DType), rows, columns, c.Accumulate)
}

// need refuses operands of another type.
func need(name string, t device.Tensor, want device.DType) error {
	if t.DType != want {
		return fmt.Errorf("%s: elements of type %v, expected %v", name, t.DType, want)
	}
	return nil
}
