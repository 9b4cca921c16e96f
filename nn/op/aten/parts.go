package aten

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// Parts of tensors along the last dimension are views with gaps, which no kernel
// of the cpu reads: operations on them are for predicting memory, and are refused
// where something is computed.

// predicted is the host kernel of an operation on such views.
func predicted(*device.Call) error {
	return fmt.Errorf("this operation of PyTorch is here to predict its memory and is not computed: use the fused composition")
}

// lastOf is x's spec with another last dimension.
func lastOf(x *gorgonia.Node, what string, groups, from, size int) (whole, part device.Spec, err error) {
	whole, _, cols, err := op.LastDimension(what, x)
	if err != nil {
		return whole, part, err
	}
	if groups < 1 || cols%groups != 0 || from < 0 || size < 1 || from+size > cols/groups {
		return whole, part, fmt.Errorf("%s: %d elements from %d on do not lie within each of %d groups of %v", what, size, from, groups, whole)
	}
	part = device.Spec{DType: whole.DType, Shape: slices.Clone(whole.Shape)}
	part.Shape[len(part.Shape)-1] = groups * size
	return whole, part, nil
}

// Columns names elements [from, from+size) of each of the equal groups that the
// last dimension of x divides into, such as heads: a view (…, groups·size). Its
// gradient is as large as x, zero elsewhere.
//
// Kernel of the gradient: aten.slice_backward dy → dx.
func Columns(x *gorgonia.Node, groups, from, size int) (*gorgonia.Node, error) {
	whole, part, err := lastOf(x, "columns", groups, from, size)
	if err != nil {
		return nil, err
	}
	gradient := func(in gorgonia.Nodes, y, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := op.Apply(op.Description{Kernel: "aten.slice_backward", Out: whole, Serial: y.ID(), Host: predicted}, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	d := op.Description{Kernel: "aten.slice", Out: part, Serial: int64(from), View: &op.View{Extra: -1, Offset: int64(from)}}
	return op.Apply(d, []bool{true}, gradient, x)
}

// Chunk divides each of the equal groups of the last dimension of x into n equal
// parts, views (…, groups·size). Their gradients are joined.
//
// Kernel of the gradient: aten.cat dy, … → dx.
func Chunk(x *gorgonia.Node, groups, n int) ([]*gorgonia.Node, error) {
	s, err := op.SpecOf(x)
	if err != nil {
		return nil, fmt.Errorf("chunk: %w", err)
	}
	size := s.Shape[len(s.Shape)-1] / groups / n
	whole, part, err := lastOf(x, "chunk", groups, 0, size)
	if err != nil {
		return nil, err
	}
	joined := func(in gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
		d := op.Description{Kernel: "aten.cat", Out: whole, Host: predicted}
		for i := range n - 1 {
			d.Uses = append(d.Uses, op.Use{Node: grad, Extra: i})
		}
		dx, err := op.Apply(d, nil, nil, grad)
		return gorgonia.Nodes{dx}, err
	}
	all, err := op.Apply(op.Description{Kernel: "aten.split", Out: part, View: &op.View{Extra: -1}}, []bool{true}, joined, x)
	if err != nil {
		return nil, err
	}
	chunks := make([]*gorgonia.Node, n)
	for i := range chunks {
		view := op.Description{Kernel: "aten.view", Out: part, Serial: int64(i), View: &op.View{Extra: -1}}
		gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
			d := view
			d.Part = i + 1
			dx, err := op.Apply(d, nil, nil, dy)
			return gorgonia.Nodes{dx}, err
		}
		if chunks[i], err = op.Apply(view, []bool{true}, gradient, all); err != nil {
			return nil, err
		}
	}
	return chunks, nil
}

// Alias names x anew. The gradient is handed on when its turn comes.
func Alias(x *gorgonia.Node) (*gorgonia.Node, error) {
	s, err := op.SpecOf(x)
	if err != nil {
		return nil, fmt.Errorf("alias: %w", err)
	}
	d := op.Description{Kernel: "aten.alias", Out: s, View: &op.View{Extra: -1}}
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		dx, err := op.Apply(d, nil, nil, dy)
		return gorgonia.Nodes{dx}, err
	}
	return op.Apply(d, []bool{true}, gradient, x)
}

// TurnedHeads are queries or keys x (B, T, heads·D) in two parts, as
// transformers' models make them that turn a part of each head: the first
// elements, as many as the tables have, and the others. Where none are left the
// others are a view of no element, whose gradient is made all the same.
func TurnedHeads(x *gorgonia.Node, heads, turned int) (first, rest *gorgonia.Node, err error) {
	size := x.Shape()[2] / heads
	if turned == size {
		if first, err = Alias(x); err == nil {
			rest, err = Columns(x, heads, size-1, 1)
		}
		return first, rest, err
	}
	if first, err = Columns(x, heads, 0, turned); err == nil {
		rest, err = Columns(x, heads, turned, size-turned)
	}
	return first, rest, err
}

// JoinHeads puts both parts of x's heads together. Both gradients are views of the
// incoming one.
//
// Kernel: aten.cat first, rest → (B, T, heads·D).
func JoinHeads(first, rest, x *gorgonia.Node) (*gorgonia.Node, error) {
	s, err := op.SpecOf(x)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	s.DType = op.OperandSpec(first).DType
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		return gorgonia.Nodes{dy, dy}, nil
	}
	return op.Apply(op.Description{Kernel: "aten.cat", Out: s, Host: predicted}, []bool{true, true}, gradient, first, rest)
}

// Contiguous is a copy of x in the order of dimensions that it is named in; the
// gradient is passed on.
//
// Kernel: aten.clone x → x.
func Contiguous(x *gorgonia.Node) (*gorgonia.Node, error) {
	s, err := op.SpecOf(x)
	if err != nil {
		return nil, fmt.Errorf("contiguous: %w", err)
	}
	gradient := func(in gorgonia.Nodes, _, dy *gorgonia.Node) (gorgonia.Nodes, error) {
		return gorgonia.Nodes{dy}, nil
	}
	return op.Apply(op.Description{Kernel: "aten.clone", Out: s, Serial: x.ID(), Host: predicted}, []bool{true}, gradient, x)
}
