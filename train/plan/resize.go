package plan

import (
	"slices"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// Resized is a plan whose sizes lie on the line through those of p and q, n times
// as far from p as q is: of a sequence that grows by a token, plans differ in
// sizes alone, and these grow in proportion. ok is false where p and q differ in
// more. Its kernels are told the sizes of p, so it is for devices that compute
// nothing.
func (p *Plan) Resized(q *Plan, n int64) (r *Plan, ok bool) {
	if len(p.Steps) != len(q.Steps) || len(p.Values) != len(q.Values) || len(p.Storages) != len(q.Storages) {
		return nil, false
	}
	line := func(a, b int64) int64 { return a + n*(b-a) }
	spec := func(a, b device.Spec) (device.Spec, bool) {
		if a.DType != b.DType || len(a.Shape) != len(b.Shape) {
			return a, false
		}
		if slices.Equal(a.Shape, b.Shape) {
			return a, true
		}
		s := device.Spec{DType: a.DType, Shape: make([]int, len(a.Shape))}
		for i := range a.Shape {
			s.Shape[i] = int(line(int64(a.Shape[i]), int64(b.Shape[i])))
		}
		return s, true
	}
	c := *p
	c.Values, c.Storages, c.Steps = slices.Clone(p.Values), slices.Clone(p.Storages), slices.Clone(p.Steps)
	for i := range c.Values {
		if c.Values[i].Spec, ok = spec(p.Values[i].Spec, q.Values[i].Spec); !ok || p.Values[i].Storage != q.Values[i].Storage {
			return nil, false
		}
		c.Values[i].Offset = uint64(line(int64(p.Values[i].Offset), int64(q.Values[i].Offset)))
	}
	for i := range c.Storages {
		c.Storages[i].Bytes = line(p.Storages[i].Bytes, q.Storages[i].Bytes)
		if p.Storages[i].Kind != q.Storages[i].Kind {
			return nil, false
		}
	}
	for i := range c.Steps {
		if c.Steps[i].Description, ok = resizedStep(&p.Steps[i], &q.Steps[i], line); !ok {
			return nil, false
		}
	}
	return &c, true
}

// resizedStep is a step's description with its temporaries resized.
func resizedStep(p, q *Step, line func(a, b int64) int64) (*op.Description, bool) {
	a, b := p.Description, q.Description
	if (a == nil) != (b == nil) || !slices.Equal(p.In, q.In) || !slices.Equal(p.Out, q.Out) ||
		!slices.Equal(p.Fresh, q.Fresh) || !slices.Equal(p.Free, q.Free) {
		return nil, false
	}
	if a == nil {
		return nil, true
	}
	if a.Kernel != b.Kernel || len(a.Memory) != len(b.Memory) {
		return nil, false
	}
	if a.ScratchBytes == b.ScratchBytes && slices.Equal(a.Memory, b.Memory) {
		return a, true
	}
	d := *a
	d.ScratchBytes = line(a.ScratchBytes, b.ScratchBytes)
	d.Memory = slices.Clone(a.Memory)
	for i := range d.Memory {
		x, y := a.Memory[i], b.Memory[i]
		if x.Kind != y.Kind || x.N != y.N {
			return nil, false
		}
		d.Memory[i].Bytes = line(x.Bytes, y.Bytes)
	}
	return &d, true
}

// SameSizes reports whether two plans take the same memory: what Resized made
// and what was compiled.
func (p *Plan) SameSizes(q *Plan) bool {
	r, ok := p.Resized(q, 0)
	if !ok {
		return false
	}
	for i := range r.Values {
		if !r.Values[i].Spec.Equal(q.Values[i].Spec) || r.Values[i].Offset != q.Values[i].Offset {
			return false
		}
	}
	for i := range r.Storages {
		if r.Storages[i].Bytes != q.Storages[i].Bytes {
			return false
		}
	}
	for i := range r.Steps {
		a, b := p.Steps[i].Description, q.Steps[i].Description
		if a != nil && (a.ScratchBytes != b.ScratchBytes || !slices.Equal(a.Memory, b.Memory)) {
			return false
		}
	}
	return true
}
