package optim

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Implementation is how an optimizer spends memory; see the package's
// documentation.
type Implementation string

// The implementations.
const (
	Foreach Implementation = "foreach"
	Loop    Implementation = "loop"
	Fused   Implementation = "fused"
)

// Options configure an optimizer. The zero value is PyTorch's defaults; fields
// of other optimizers than the one made must be zero.
type Options struct {
	// Implementation overrides the one that the name implies.
	Implementation Implementation `json:"implementation,omitempty"`
	// WeightDecay is 0.01 if nil for adamw and 0 for others. It is added to
	// the gradient as an L2 penalty by sgd and adam, and shrinks the weights
	// directly (decoupled) with adamw, adafactor and lion.
	WeightDecay *float64 `json:"weight_decay,omitempty"`
	// DecayRank2Only leaves parameters with fewer than two dimensions (biases
	// and norms) out of weight decay.
	DecayRank2Only bool `json:"decay_rank2_only,omitempty"`

	// Momentum of sgd: 0.9 if 0 for sgd-momentum.
	Momentum float64 `json:"momentum,omitempty"`
	// Dampening of sgd's momentum.
	Dampening float64 `json:"dampening,omitempty"`
	// Nesterov selects Nesterov momentum.
	Nesterov bool `json:"nesterov,omitempty"`

	// Betas of adam and adamw, 0.9 and 0.999 if nil, and of lion, 0.9 and 0.99.
	Betas *[2]float64 `json:"betas,omitempty"`
	// Eps is, if 0, 1e-8 for adam and adamw. For adafactor it is PyTorch's
	// eps1, and 0 stands for the element type's machine epsilon.
	Eps float64 `json:"eps,omitempty"`
	// AMSGrad divides by the largest second moment so far.
	AMSGrad bool `json:"amsgrad,omitempty"`

	// Eps2 of adafactor is the least scale of a parameter: 1e-3 if 0.
	Eps2 float64 `json:"eps2,omitempty"`
	// Beta2Decay of adafactor is the exponent by which the second moment's
	// decay rate grows: −0.8 if 0.
	Beta2Decay float64 `json:"beta2_decay,omitempty"`
	// ClipThreshold of adafactor bounds an update's root mean square
	// (PyTorch's d): 1 if 0.
	ClipThreshold float64 `json:"clip_threshold,omitempty"`
}

// New makes an optimizer by name.
func New(name string, o Options) (Optimizer, error) {
	k, implied, err := Find(name)
	if err != nil {
		return nil, err
	}
	if o.Implementation == "" {
		o.Implementation = implied.Implementation
	}
	if implied.Implementation != k.Variants[0].Implementation && o.Implementation != implied.Implementation {
		return nil, fmt.Errorf("optimizer %s: its name says %s, the options say %s", name, implied.Implementation, o.Implementation)
	}
	if !slices.ContainsFunc(k.Variants, func(v Variant) bool { return v.Implementation == o.Implementation }) {
		var names []string
		for _, v := range k.Variants {
			names = append(names, string(v.Implementation))
		}
		return nil, fmt.Errorf("optimizer %s has no implementation %q: %s", k.Name, o.Implementation, strings.Join(names, ", "))
	}
	if err := o.resolve(&k); err != nil {
		return nil, fmt.Errorf("optimizer %s: %w", name, err)
	}
	return k.make(k, o), nil
}

// resolve checks the options and fills in defaults.
func (o *Options) resolve(k *Kind) error {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"momentum", o.Momentum != 0},
		{"dampening", o.Dampening != 0},
		{"nesterov", o.Nesterov},
		{"betas", o.Betas != nil},
		{"amsgrad", o.AMSGrad},
		{"eps", o.Eps != 0},
		{"eps2", o.Eps2 != 0},
		{"beta2_decay", o.Beta2Decay != 0},
		{"clip_threshold", o.ClipThreshold != 0},
	} {
		if f.set && !slices.Contains(k.options, f.name) {
			return fmt.Errorf("it has no option %s", f.name)
		}
	}
	d := &k.defaults
	decay := 0.0
	for _, w := range []*float64{d.WeightDecay, o.WeightDecay} {
		if w != nil {
			decay = *w
		}
	}
	o.WeightDecay = &decay
	if o.Betas == nil {
		o.Betas = k.Betas()
	}
	orDefault(&o.Momentum, d.Momentum)
	orDefault(&o.Eps, d.Eps)
	orDefault(&o.Eps2, d.Eps2)
	orDefault(&o.Beta2Decay, d.Beta2Decay)
	orDefault(&o.ClipThreshold, d.ClipThreshold)
	return o.validate()
}

func orDefault(v *float64, d float64) {
	if *v == 0 {
		*v = d
	}
}

func (o *Options) validate() error {
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"weight decay", *o.WeightDecay}, {"momentum", o.Momentum}, {"eps", o.Eps}, {"eps2", o.Eps2},
	} {
		if !(f.value >= 0) || math.IsInf(f.value, 0) {
			return fmt.Errorf("%s %v: it must be a finite number, 0 or more", f.name, f.value)
		}
	}
	if o.Betas != nil {
		for i, b := range o.Betas {
			if !(b >= 0 && b < 1) {
				return fmt.Errorf("beta%d %v: it must be in [0, 1)", i+1, b)
			}
		}
	}
	if math.IsNaN(o.Dampening) || math.IsInf(o.Dampening, 0) {
		return fmt.Errorf("dampening %v: it must be a finite number", o.Dampening)
	}
	if o.Nesterov && (o.Momentum == 0 || o.Dampening != 0) {
		return fmt.Errorf("nesterov needs momentum and no dampening")
	}
	if !(o.Beta2Decay <= 0) {
		return fmt.Errorf("beta2_decay %v: it must be 0 or less", o.Beta2Decay)
	}
	if !(o.ClipThreshold >= 0) {
		return fmt.Errorf("clip_threshold %v: it must be greater than 0", o.ClipThreshold)
	}
	return nil
}

// decays says whether a parameter of a rank is decayed.
func (o *Options) decays(rank int) bool {
	return *o.WeightDecay != 0 && (!o.DecayRank2Only || rank >= 2)
}
