package nn

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// LoRA is a low-rank adapter of a Linear layer: y = base(x) + s·B(A(dropout(x)))
// (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021), as peft
// makes it: A begins as a Linear does, B with zeros, and both stay float32 in a
// model of bfloat16.
type LoRA struct {
	A, B    *Linear
	Dropout *Dropout
	Scale   float64 // alpha / rank
}

// LoRAOptions say which layers are adapted, and how. Without a rank none is.
type LoRAOptions struct {
	Rank    int     `json:"rank"`
	Alpha   float64 `json:"alpha"` // the scale times the rank; the rank when 0
	Dropout float64 `json:"dropout,omitempty"`
	// Targets are names of Linear layers, such as q_proj, or of the ends of their
	// paths; AllLinear stands for all but the output head.
	Targets []string `json:"targets"`
}

// AllLinear is the target that stands for all Linear layers but the head.
const AllLinear = "all-linear"

// Validate finds what cannot be adapted with.
func (o LoRAOptions) Validate() error {
	switch {
	case o.Rank < 1 || o.Rank > math.MaxInt16:
		return fmt.Errorf("LoRA of rank %d: it must be from 1 to %d", o.Rank, math.MaxInt16)
	case !(o.Alpha >= 0) || math.IsInf(o.Alpha, 0):
		return fmt.Errorf("LoRA with alpha %v: it must be above 0", o.Alpha)
	case !(o.Dropout >= 0 && o.Dropout < 1):
		return fmt.Errorf("LoRA with dropout %v: it must be from 0 up to, but not including, 1", o.Dropout)
	case len(o.Targets) == 0:
		return fmt.Errorf("LoRA without targets: name Linear layers, such as q_proj,v_proj, or %s", AllLinear)
	}
	return nil
}

func (o LoRAOptions) targets(path string, l *Linear) bool {
	if slices.Contains(o.Targets, AllLinear) {
		return !l.Head
	}
	return slices.ContainsFunc(o.Targets, func(t string) bool { return path == t || strings.HasSuffix(path, "."+t) })
}

// AddLoRA freezes all parameters of a model and gives the Linear layers that are
// targets adapters, which are trained.
func AddLoRA(root Module, o LoRAOptions) error {
	if err := o.Validate(); err != nil {
		return err
	}
	var layers []*Linear
	var err error
	hit := map[string]bool{}
	Walk(root, func(path string, m Module) {
		l, ok := m.(*Linear)
		for _, t := range o.Targets {
			if err == nil && (path == t || strings.HasSuffix(path, "."+t)) && (!ok || l.Head) {
				err = fmt.Errorf("LoRA: %s (%s) cannot be adapted: only Linear layers below the head can", path, m.Type())
			}
			hit[t] = hit[t] || ok && o.targets(path, l)
		}
		if ok && !l.Head && o.targets(path, l) {
			layers = append(layers, l)
		}
	})
	for _, t := range o.Targets {
		if err == nil && !hit[t] {
			err = fmt.Errorf("LoRA: no Linear layer of the model is called %s", t)
		}
	}
	if err != nil {
		return err
	}
	for _, p := range Parameters(root) {
		p.Frozen = true
	}
	for _, l := range layers {
		l.Adapter = newLoRA(l, o)
	}
	return nil
}

func newLoRA(l *Linear, o LoRAOptions) *LoRA {
	alpha := o.Alpha
	if alpha == 0 {
		alpha = float64(o.Rank)
	}
	a := &LoRA{A: NewLinear(l.In, o.Rank, false), B: NewLinear(o.Rank, l.Out, false), Dropout: &Dropout{P: o.Dropout}, Scale: alpha / float64(o.Rank)}
	a.B.Weight.Init = Init{Kind: "zeros"}
	a.A.Weight.Wide, a.B.Weight.Wide = true, true
	a.B.Parts, a.B.Groups = l.Parts, l.Groups
	return a
}

// The parts of names below an adapted layer.
const (
	baseName    = ".base_layer."
	adapterName = ".default."
)

// BaseName is the name that a parameter has in the model without adapters.
func BaseName(name string) string { return strings.Replace(name, baseName, ".", 1) }

// AdapterName is the name that peft saves a parameter of an adapter under; ok is
// false for other parameters.
func AdapterName(name string) (peft string, ok bool) {
	if !strings.Contains(name, ".lora_A"+adapterName) && !strings.Contains(name, ".lora_B"+adapterName) {
		return "", false
	}
	return "base_model.model." + strings.Replace(name, adapterName, ".", 1), true
}

// Adapted lists the layers of a model that have adapters, by their paths.
func Adapted(root Module) map[string]*Linear {
	layers := map[string]*Linear{}
	Walk(root, func(path string, m Module) {
		if l, ok := m.(*Linear); ok && l.Adapter != nil {
			layers[path] = l
		}
	})
	return layers
}

// baseLayer is a Linear without its adapter.
type baseLayer struct{ *Linear }

func (l baseLayer) plain() *Linear {
	p := *l.Linear
	p.Adapter, p.FirstToken = nil, false // taken before
	return &p
}

func (l baseLayer) Members(m *Members) { l.plain().Members(m) }

func (l baseLayer) Forward(b *Builder, in ...*gorgonia.Node) (Output, error) {
	return l.plain().Forward(b, in...)
}

func (a *LoRA) members(m *Members, l *Linear) {
	m.Module("base_layer", baseLayer{l})
	m.Module("lora_dropout.default", a.Dropout)
	m.Module("lora_A.default", a.A)
	m.Module("lora_B.default", a.B)
}

func (a *LoRA) forward(b *Builder, l *Linear, x *gorgonia.Node) (Output, error) {
	base, err := b.Call("base_layer", baseLayer{l}, x)
	if err != nil {
		return Output{}, err
	}
	c := b.Chain()
	if b.Eager() && b.options.DType == device.BFloat16 {
		x = With2(c, aten.Cast, x, device.Float32, b.Serial())
		c.Hold(x)
	}
	h := c.Call("lora_dropout.default", a.Dropout, x)
	h = c.Call("lora_A.default", a.A, h)
	parts := c.CallAll(len(base.Nodes), "lora_B.default", a.B, h)
	out := base
	out.Nodes = make([]*gorgonia.Node, len(parts))
	for i, p := range parts {
		out.Nodes[i] = c.Apply(func() (*gorgonia.Node, error) { return a.sum(b, base.Nodes[i], p) })
	}
	return out, c.Err()
}

// sum is base + s·h, in the element type of base.
func (a *LoRA) sum(b *Builder, base, h *gorgonia.Node) (*gorgonia.Node, error) {
	if !b.Eager() {
		scaled, err := op.Scale(h, a.Scale)
		if err != nil {
			return nil, err
		}
		return op.Add(base, scaled)
	}
	s, err := op.SpecOf(base)
	if err != nil {
		return nil, err
	}
	scaled, err := aten.MulScalar(h, a.Scale)
	if err != nil {
		return nil, err
	}
	y, err := aten.Add(base, scaled)
	if err != nil {
		return nil, err
	}
	b.KeepUntil(y, base) // the variable of the result
	return aten.Cast(y, s.DType, b.Serial())
}

// Freeze freezes the parameters whose names match a pattern of path.Match, and
// says how many.
func Freeze(root Module, pattern string) (n int, err error) {
	for _, p := range Parameters(root) {
		ok, err := path.Match(pattern, p.Name)
		if err != nil {
			return n, fmt.Errorf("freezing %q: it is no pattern: %w", pattern, err)
		}
		if ok {
			p.Frozen = true
			n++
		}
	}
	return n, nil
}
