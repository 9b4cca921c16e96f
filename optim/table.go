package optim

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is an optimizer as a row of the table: what it is called, what it keeps
// and what it needs for a moment. Whoever asks what an optimizer costs asks its
// row, not its name.
type Kind struct {
	Name  string // as on the command line, without an implementation
	Title string // in a sentence
	// Variants are the implementations. The first is the one that is meant where
	// none is named; the others are suffixes of the name.
	Variants     []Variant
	LearningRate float64 // the default
	// State is what is kept for each parameter from the first step on.
	State        []StateTensor
	StateFormula string // in words, for N parameters of P bytes
	// Advice is the place among the optimizers that are advised where another's
	// state is too much, from 1; 0 for those that are not.
	Advice int

	options  []string // of those that not all optimizers have
	defaults Options  // where the zero value is not the default
	make     func(Kind, Options) Optimizer
}

// Variant is an implementation of an optimizer.
type Variant struct {
	Implementation Implementation
	Temporaries    Temporaries
	CounterBytes   int64 // of a count of steps on the device, for each parameter
}

// StateTensor is a tensor that is kept for each parameter.
type StateTensor struct {
	Symbol string // in formulas
	// Elements is of a parameter's shape; nil where it is the parameter's own.
	Elements func(shape []int) int64
}

// Temporaries bound what a step needs beside parameters, gradients and state,
// without an L2 penalty.
type Temporaries struct {
	Sentence    string // what there is
	Least, Most Extent // equal where it is known exactly
}

// Extent is memory in terms of the parameters.
type Extent struct {
	All     float64 // times all parameters together
	Largest float64 // times the largest of them
}

// Bytes is the memory for parameters of so many bytes, the largest of which has
// so many.
func (e Extent) Bytes(all, largest int64) int64 {
	return int64(e.All*float64(all) + e.Largest*float64(largest))
}

func exactly(sentence string, e Extent) Temporaries { return Temporaries{sentence, e, e} }

// The temporaries that several have.
var (
	allAtOnce   = exactly("The update of all tensors at once makes one parameter-sized set of temporaries", Extent{All: 1})
	inPlace     = exactly("The update of the weights in place makes no temporaries", Extent{})
	inOneKernel = exactly("The update in one kernel makes no temporaries", Extent{})
	ofOneTensor = Temporaries{"The update of one tensor after the other has two temporaries of that tensor's size, and for a moment one of the tensor before or after it",
		Extent{Largest: 2}, Extent{Largest: 3}}
)

// kinds is the table.
var kinds = []Kind{
	{Name: "sgd", Title: "SGD", LearningRate: 1e-3, Advice: 2,
		Variants:     []Variant{{Foreach, inPlace, 0}, {Fused, inOneKernel, 0}, {Loop, inPlace, 0}},
		StateFormula: "nothing",
		options:      []string{"momentum", "dampening", "nesterov"}, make: newSGD},
	{Name: "sgd-momentum", Title: "SGD with momentum", LearningRate: 1e-3,
		Variants: []Variant{{Foreach, inPlace, 0}, {Fused, inOneKernel, 0}, {Loop, inPlace, 0}},
		State:    []StateTensor{{Symbol: "b"}}, StateFormula: "N × P (momentum)",
		options: []string{"momentum", "dampening", "nesterov"}, defaults: Options{Momentum: 0.9}, make: newSGD},
	{Name: "adam", Title: "Adam", LearningRate: 1e-3,
		Variants: []Variant{{Foreach, allAtOnce, 0}, {Fused, inOneKernel, 4}, {Loop, ofOneTensor, 0}},
		State:    []StateTensor{{Symbol: "m"}, {Symbol: "v"}}, StateFormula: "2 × N × P (both moments)",
		options: []string{"betas", "amsgrad", "eps"}, defaults: Options{Betas: &[2]float64{0.9, 0.999}, Eps: 1e-8}, make: newAdam},
	{Name: "adamw", Title: "AdamW", LearningRate: 1e-3,
		Variants: []Variant{{Foreach, allAtOnce, 0}, {Fused, inOneKernel, 4}, {Loop, ofOneTensor, 0}},
		State:    []StateTensor{{Symbol: "m"}, {Symbol: "v"}}, StateFormula: "2 × N × P (both moments)",
		options:  []string{"betas", "amsgrad", "eps"},
		defaults: Options{Betas: &[2]float64{0.9, 0.999}, Eps: 1e-8, WeightDecay: new(0.01)}, make: newAdamW},
	{Name: "adafactor", Title: "Adafactor", LearningRate: 1e-2, Advice: 1,
		Variants: []Variant{
			{Loop, Temporaries{"The update of one tensor after the other has the temporaries of that tensor, at most twice its size",
				Extent{}, Extent{Largest: 2}}, 0},
			{Fused, Temporaries{"The update in one kernel has sums of a few elements for temporaries, at most 1 % of the parameters",
				Extent{}, Extent{All: 0.01}}, 0}},
		State:        []StateTensor{{Symbol: "v", Elements: factoredElements}},
		StateFormula: "rows + columns of each matrix and all of each vector, × P (factored second moment)",
		options:      []string{"eps", "eps2", "beta2_decay", "clip_threshold"},
		defaults:     Options{Eps2: 1e-3, Beta2Decay: -0.8, ClipThreshold: 1}, make: newAdafactor},
	{Name: "lion", Title: "Lion", LearningRate: 1e-4,
		Variants: []Variant{
			{Loop, Temporaries{"The update of one tensor after the other has three temporaries of that tensor's size, and for a moment one of the tensor before it",
				Extent{Largest: 3}, Extent{Largest: 4}}, 0},
			{Fused, inOneKernel, 0}, {Foreach, allAtOnce, 0}},
		State: []StateTensor{{Symbol: "m"}}, StateFormula: "N × P (momentum)",
		options: []string{"betas"}, defaults: Options{Betas: &[2]float64{0.9, 0.99}}, make: newLion},
}

// factoredElements is the number of elements of a factored second moment: for a
// tensor of two or more dimensions the means over its last and over its last
// but one dimension (Shazeer and Stern, 2018), for others the tensor's own.
func factoredElements(shape []int) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= int64(d)
	}
	if len(shape) < 2 {
		return n
	}
	last, before := int64(shape[len(shape)-1]), int64(shape[len(shape)-2])
	return n/last + n/before
}

// Find is the row of an optimizer's name, and the variant that the name stands
// for.
func Find(name string) (Kind, Variant, error) {
	for _, k := range kinds {
		for i, v := range k.Variants {
			if name == k.NameOf(v.Implementation) || i == 0 && name == k.Name+"-"+string(v.Implementation) {
				return k, v, nil
			}
		}
	}
	return Kind{}, Variant{}, fmt.Errorf("unknown optimizer %q: want one of %s", name, strings.Join(Names(), ", "))
}

// NameOf is the optimizer's name with an implementation, as New takes it.
func (k Kind) NameOf(i Implementation) string {
	if i == k.Variants[0].Implementation {
		return k.Name
	}
	return k.Name + "-" + string(i)
}

// Names are the names of the optimizer's variants.
func (k Kind) Names() []string {
	names := make([]string, len(k.Variants))
	for i, v := range k.Variants {
		names[i] = k.NameOf(v.Implementation)
	}
	return names
}

// Names lists the optimizers. A name without a suffix is the implementation
// that is usual, mostly foreach.
func Names() []string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.Names()...)
	}
	return names
}

// WithBetas are the optimizers that have the option betas.
func WithBetas() []string {
	var names []string
	for _, k := range kinds {
		if k.Betas() != nil {
			names = append(names, k.Name)
		}
	}
	return names
}

// Betas are a copy of the default of the option betas; nil where there is none.
func (k Kind) Betas() *[2]float64 {
	if k.defaults.Betas == nil {
		return nil
	}
	betas := *k.defaults.Betas
	return &betas
}

// WholeTensors is how many tensors of its own size are kept for a parameter: of
// the state, that is what is known of a number of parameters alone.
func (k Kind) WholeTensors() int {
	n := 0
	for _, s := range k.State {
		if s.Elements == nil {
			n++
		}
	}
	return n
}

// StateElements is how many elements are kept for a parameter of a shape.
func (k Kind) StateElements(shape []int) (n int64) {
	for _, s := range k.State {
		if s.Elements != nil {
			n += s.Elements(shape)
			continue
		}
		size := int64(1)
		for _, d := range shape {
			size *= int64(d)
		}
		n += size
	}
	return n
}

// Factored says whether state is kept that is smaller than the parameter.
func (k Kind) Factored() bool { return k.WholeTensors() < len(k.State) }

// Lighter are the optimizers that are advised where the state of another is too
// much, the first of them first: those after it, where it is one of them.
func Lighter(name string) []string {
	own, _, _ := Find(name) // an unknown one is none of them
	var list []Kind
	for _, k := range kinds {
		if k.Advice > own.Advice {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, func(a, b Kind) int { return a.Advice - b.Advice })
	names := make([]string, len(list))
	for i, k := range list {
		names[i] = k.Name
	}
	return names
}
