package aten

import (
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/kernel"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/host"
)

// applyTo applies an operation without a gradient to operands.
func applyTo(kernel string, out device.Spec, h func(*device.Call) error, in ...*gorgonia.Node) (*gorgonia.Node, error) {
	return op.Apply(op.Description{Kernel: kernel, Out: out, Host: h}, nil, nil, in...)
}

// each makes a kernel of a function of one element.
func each[T device.Float](f func(x float64) float64) host.Kernel {
	return func(c *device.Call) error {
		x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
		device.Parallel(len(y), host.Costly, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				y[i] = T(f(float64(x[i])))
			}
		})
		return nil
	}
}

// eachOf chooses each for an element type.
func eachOf(dt device.DType, f func(x float64) float64) host.Kernel {
	return host.For(dt, each[float32](f), each[float64](f))
}

// products multiplies operands of one shape.
func products[T device.Float](c *device.Call) error {
	a, b, y := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	device.Parallel(len(y), host.Cheap, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			y[i] = a[i] * b[i]
		}
	})
	return nil
}

func productsOf(dt device.DType) host.Kernel {
	return host.For(dt, products[float32], products[float64])
}

// MulScalar is x·factor; the gradient is a multiplication, too.
//
// Kernel (kernel.Scalar: factor): aten.mul x → y.
func MulScalar(x *gorgonia.Node, factor float64) (*gorgonia.Node, error) {
	s, err := op.SpecOf(x)
	if err != nil {
		return nil, err
	}
	d := op.Description{Kernel: "aten.mul", Out: s, Attributes: kernel.Scalar{Value: factor},
		Host: host.For(s.DType, host.Scale[float32], host.Scale[float64])}
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := op.Apply(d, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(d, []bool{true}, gradient, x)
}

// DivScalar is x/divisor.
//
// Kernel (kernel.Scalar: 1/divisor): aten.div x → y.
func DivScalar(x *gorgonia.Node, divisor float64) (*gorgonia.Node, error) {
	s, err := op.SpecOf(x)
	if err != nil {
		return nil, err
	}
	d := op.Description{Kernel: "aten.div", Out: s, Attributes: kernel.Scalar{Value: 1 / divisor},
		Host: host.For(s.DType, host.Scale[float32], host.Scale[float64])}
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := op.Apply(d, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(d, []bool{true}, gradient, x)
}

// AddScalar is x + term; its gradient is the incoming one.
//
// Kernel (kernel.Scalar: term): aten.add x → y.
func AddScalar(x *gorgonia.Node, term float64) (*gorgonia.Node, error) {
	s, err := op.SpecOf(x)
	if err != nil {
		return nil, err
	}
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		return gorgonia.Nodes{dy}, nil
	}
	return op.Apply(op.Description{Kernel: "aten.add", Out: s, Attributes: kernel.Scalar{Value: term},
		Host: eachOf(s.DType, func(x float64) float64 { return x + term })}, []bool{true}, gradient, x)
}

// Pow is x to a power. Its gradient, dy·(n·xⁿ⁻¹), is three operations.
//
// Kernels (kernel.Scalar: power): aten.pow x → y; aten.mul.
func Pow(x *gorgonia.Node, power float64) (*gorgonia.Node, error) {
	s, err := op.SpecOf(x)
	if err != nil {
		return nil, err
	}
	pow := func(n float64) op.Description {
		return op.Description{Kernel: "aten.pow", Out: s, Attributes: kernel.Scalar{Value: n},
			Host: eachOf(s.DType, func(x float64) float64 { return math.Pow(x, n) })}
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		p, err := op.Apply(withForward(pow(power-1), y), nil, nil, in[0])
		if err != nil {
			return nil, err
		}
		m, err := op.Apply(op.Description{Kernel: "aten.mul", Out: s, Attributes: kernel.Scalar{Value: power},
			Host: host.For(s.DType, host.Scale[float32], host.Scale[float64])}, nil, nil, p)
		if err != nil {
			return nil, err
		}
		dx, err := applyTo("aten.mul", s, productsOf(s.DType), dy, m)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(pow(power), []bool{true}, gradient, x)
}

// withForward keeps an operation of a gradient from being taken for an equal
// one of the forward pass.
func withForward(d op.Description, forward *gorgonia.Node) op.Description {
	d.Serial = forward.ID()
	return d
}

// Rsqrt is 1/√x. Its gradient, −½·dy·y³, is three operations.
//
// Kernels: aten.rsqrt x → y; aten.pow, aten.mul.
func Rsqrt(x *gorgonia.Node) (*gorgonia.Node, error) {
	s, err := op.SpecOf(x)
	if err != nil {
		return nil, err
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		p, err := applyTo("aten.pow", s, eachOf(s.DType, func(y float64) float64 { return y * y * y }), y)
		if err != nil {
			return nil, err
		}
		m, err := op.Apply(op.Description{Kernel: "aten.mul", Out: s, Attributes: kernel.Scalar{Value: -0.5},
			Host: host.For(s.DType, host.Scale[float32], host.Scale[float64])}, nil, nil, dy)
		if err != nil {
			return nil, err
		}
		dx, err := applyTo("aten.mul", s, productsOf(s.DType), m, p)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(op.Description{Kernel: "aten.rsqrt", Out: s,
		Host: eachOf(s.DType, func(x float64) float64 { return 1 / math.Sqrt(x) })}, []bool{true}, gradient, x)
}

// MeanLast is the mean over the last dimension, which stays with size 1.
//
// Kernels (kernel.Rows): aten.mean x (…, C) → (…, 1); aten.div dy → dx.
func MeanLast(x *gorgonia.Node) (*gorgonia.Node, error) {
	s, rows, cols, err := op.LastDimension("mean", x)
	if err != nil {
		return nil, err
	}
	out := device.Spec{DType: s.DType, Shape: slices.Clone(s.Shape)}
	out.Shape[len(out.Shape)-1] = 1
	sizes := kernel.Rows{Rows: rows, Columns: cols}
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := op.Apply(op.Description{Kernel: "aten.div", Out: s, Attributes: sizes,
			Host: host.For(s.DType, meanLastGradient[float32], meanLastGradient[float64])}, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(op.Description{Kernel: "aten.mean", Out: out, Attributes: sizes,
		Host: host.For(s.DType, meanLast[float32], meanLast[float64])}, []bool{true}, gradient, x)
}

func meanLast[T device.Float](c *device.Call) error {
	_, cols := rowsOf(c)
	x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	for r := range y {
		y[r] = T(host.Sum(x[r*cols:(r+1)*cols]) / float64(cols))
	}
	return nil
}

func meanLastGradient[T device.Float](c *device.Call) error {
	_, cols := rowsOf(c)
	dy, dx := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	for i := range dx {
		dx[i] = dy[i/cols] / T(cols)
	}
	return nil
}

// Mul is a·b for operands of one shape, in the wider of their element types.
//
// Kernel: aten.mul a, b → a·b.
func Mul(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	sa, err := op.SpecOf(a)
	if err != nil {
		return nil, fmt.Errorf("mul: %w", err)
	}
	sb, err := op.SpecOf(b)
	if err != nil {
		return nil, fmt.Errorf("mul: %w", err)
	}
	if !slices.Equal(sa.Shape, sb.Shape) {
		return nil, fmt.Errorf("mul: %v and %v must be alike", sa, sb)
	}
	s := device.Spec{DType: wider(sa.DType, sb.DType), Shape: sa.Shape}
	h := productsOf(s.DType)
	if sa.DType != sb.DType {
		h = unsupported
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		grads := make(gorgonia.Nodes, 2)
		var err error
		// PyTorch makes the gradient of the second factor first.
		for _, i := range []int{1, 0} {
			d := op.Description{Kernel: "aten.mul", Out: s, Serial: 2*y.ID() + int64(i), Host: h}
			if grads[i], err = op.Apply(d, nil, nil, dy, in[1-i]); err != nil {
				return nil, err
			}
		}
		for i, n := range in {
			if grads[i], err = convert("aten.to", grads[i], op.OperandSpec(n).DType); err != nil {
				return nil, err
			}
		}
		return grads, nil
	}
	return op.Apply(op.Description{Kernel: "aten.mul", Out: s, Host: h}, []bool{true, true}, gradient, a, b)
}

// MulRows is x·r, r having one element for each row of x: x is (…, C), r is
// (…, 1).
//
// Kernels (kernel.Rows): aten.mul x, r → y; aten.mul, aten.sum.
func MulRows(x, r *gorgonia.Node) (*gorgonia.Node, error) {
	s, rows, cols, err := op.LastDimension("mul", x)
	if err != nil {
		return nil, err
	}
	rs := op.OperandSpec(r)
	if rs.Elements() != int64(rows) || rs.DType != s.DType {
		return nil, fmt.Errorf("mul: %v does not go with %v", rs, s)
	}
	d := op.Description{Kernel: "aten.mul", Out: s, Attributes: kernel.Rows{Rows: rows, Columns: cols},
		Host: host.For(s.DType, mulRows[float32], mulRows[float64])}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		t, err := applyTo("aten.mul", s, productsOf(s.DType), dy, in[0])
		if err != nil {
			return nil, err
		}
		dx, err := op.Apply(d, nil, nil, dy, in[1])
		if err != nil {
			return nil, err
		}
		dr, err := op.Apply(op.Description{Kernel: "aten.sum", Out: rs, Attributes: d.Attributes, Validates: true,
			Host: host.For(s.DType, sumLast[float32], sumLast[float64])}, nil, nil, t)
		return gorgonia.Nodes{dx, dr}, err
	}
	return op.Apply(d, []bool{true, true}, gradient, x, r)
}

func mulRows[T device.Float](c *device.Call) error {
	_, cols := rowsOf(c)
	x, r, y := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	for i := range y {
		y[i] = x[i] * r[i/cols]
	}
	return nil
}

func sumLast[T device.Float](c *device.Call) error {
	_, cols := rowsOf(c)
	x, y := device.Floats[T](c.In[0]), device.Floats[T](c.Out[0])
	for r := range y {
		y[r] = T(host.Sum(x[r*cols : (r+1)*cols]))
	}
	return nil
}

// MulColumns is w·x, w having one element for each column of x: w is (C), x is
// (…, C), in the wider of their element types.
//
// Kernels (kernel.Rows): aten.mul w, x → y; aten.mul, aten.sum.
func MulColumns(w, x *gorgonia.Node) (*gorgonia.Node, error) {
	return mulColumnsOf(w, x, false)
}

// MulByColumns is MulColumns with the factors exchanged, x·w, whose gradients come in
// the other order.
func MulByColumns(x, w *gorgonia.Node) (*gorgonia.Node, error) {
	return mulColumnsOf(w, x, true)
}

// mulColumnsOf is w·x or, byColumns, x·w. PyTorch makes the gradient of the second
// factor first.
func mulColumnsOf(w, x *gorgonia.Node, byColumns bool) (*gorgonia.Node, error) {
	xs, rows, cols, err := op.LastDimension("mul", x)
	if err != nil {
		return nil, err
	}
	ws := op.OperandSpec(w)
	if err := op.CheckVector("mul", "weight", w, ws.DType, cols); err != nil {
		return nil, err
	}
	s := device.Spec{DType: wider(ws.DType, xs.DType), Shape: xs.Shape}
	alike := ws.DType == xs.DType
	kernelOf := func(single, double host.Kernel) host.Kernel {
		if !alike {
			return unsupported
		}
		return host.For(s.DType, single, double)
	}
	d := op.Description{Kernel: "aten.mul", Out: s, Attributes: kernel.Rows{Rows: rows, Columns: cols},
		Host: kernelOf(mulColumns[float32], mulColumns[float64])}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		var dx, t *gorgonia.Node
		c := steps{}
		ofX := func() { dx = c.do(func() (*gorgonia.Node, error) { return op.Apply(d, nil, nil, dy, w) }) }
		ofW := func() {
			t = c.do(func() (*gorgonia.Node, error) {
				return applyTo("aten.mul", s, kernelOf(products[float32], products[float64]), dy, x)
			})
		}
		if byColumns {
			ofW()
			ofX()
		} else {
			ofX()
			ofW()
		}
		dw := c.do(func() (*gorgonia.Node, error) { return columnSum(t, w, int64(rows), int64(cols)) })
		dx = c.do(func() (*gorgonia.Node, error) { return convert("aten.to", dx, xs.DType) })
		if byColumns {
			return gorgonia.Nodes{dx, dw}, c.err
		}
		return gorgonia.Nodes{dw, dx}, c.err
	}
	if byColumns {
		return op.Apply(d, []bool{true, true}, gradient, x, w)
	}
	d2 := d
	d2.Host = kernelOf(mulColumnsFirst[float32], mulColumnsFirst[float64])
	return op.Apply(d2, []bool{true, true}, gradient, w, x)
}

func mulColumns[T device.Float](c *device.Call) error {
	_, cols := rowsOf(c)
	x, w, y := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	for i := range y {
		y[i] = x[i] * w[i%cols]
	}
	return nil
}

func mulColumnsFirst[T device.Float](c *device.Call) error {
	_, cols := rowsOf(c)
	w, x, y := device.Floats[T](c.In[0]), device.Floats[T](c.In[1]), device.Floats[T](c.Out[0])
	for i := range y {
		y[i] = x[i] * w[i%cols]
	}
	return nil
}
