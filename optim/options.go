package optim

import (
	"fmt"
	"math"
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
	// directly (decoupled) with adamw and adafactor.
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

	// Betas of adam and adamw: 0.9 and 0.999 if nil.
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

// kind is a family of optimizers under one base name.
type kind struct {
	name     string
	standard Implementation   // that PyTorch uses
	others   []Implementation // as suffixes of the name
	rate     float64          // PyTorch's default learning rate
	state    int              // tensors of a parameter's size that are kept for it
	make     func(kind, Options) Optimizer
}

func kinds() []kind {
	return []kind{
		{"sgd", Foreach, []Implementation{Fused, Loop}, 1e-3, 0, newSGD},
		{"sgd-momentum", Foreach, []Implementation{Fused, Loop}, 1e-3, 1, newSGD},
		{"adam", Foreach, []Implementation{Fused, Loop}, 1e-3, 2, newAdam},
		{"adamw", Foreach, []Implementation{Fused, Loop}, 1e-3, 2, newAdam},
		{"adafactor", Loop, []Implementation{Fused}, 1e-2, 0, newAdafactor},
	}
}

// Names lists the optimizers. A name without a suffix is the implementation
// that PyTorch uses unless told otherwise: foreach, but loop for adafactor.
func Names() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name)
		for _, i := range k.others {
			names = append(names, k.name+"-"+string(i))
		}
	}
	return names
}

// New makes an optimizer by name.
func New(name string, o Options) (Optimizer, error) {
	k, implied, err := find(name)
	if err != nil {
		return nil, err
	}
	if o.Implementation == "" {
		o.Implementation = implied
	}
	if implied != k.standard && o.Implementation != implied {
		return nil, fmt.Errorf("optimizer %s: its name says %s, the options say %s", name, implied, o.Implementation)
	}
	known := o.Implementation == k.standard
	for _, i := range k.others {
		known = known || o.Implementation == i
	}
	if !known {
		return nil, fmt.Errorf("optimizer %s has no implementation %q: %s, %v", k.name, o.Implementation, k.standard, join(k.others))
	}
	if err := o.resolve(k.name); err != nil {
		return nil, fmt.Errorf("optimizer %s: %w", name, err)
	}
	return k.make(k, o), nil
}

// DefaultLearningRate is PyTorch's default for the optimizer of a name.
func DefaultLearningRate(name string) (float64, error) {
	k, _, err := find(name)
	return k.rate, err
}

// StateTensors is how many tensors of a parameter's size an optimizer keeps for
// each parameter from its first step on, at the least.
func StateTensors(name string) (int, error) {
	k, _, err := find(name)
	return k.state, err
}

// Variants are the names of the same optimizer's other implementations.
func Variants(name string) []string {
	k, own, err := find(name)
	if err != nil {
		return nil
	}
	var names []string
	for _, i := range k.others {
		if i != own {
			names = append(names, k.name+"-"+string(i))
		}
	}
	return names
}

func find(name string) (kind, Implementation, error) {
	for _, k := range kinds() {
		if name == k.name || name == k.name+"-"+string(k.standard) {
			return k, k.standard, nil
		}
		for _, i := range k.others {
			if name == k.name+"-"+string(i) {
				return k, i, nil
			}
		}
	}
	return kind{}, "", fmt.Errorf("unknown optimizer %q: want one of %s", name, strings.Join(Names(), ", "))
}

func join(list []Implementation) string {
	s := make([]string, len(list))
	for i := range list {
		s[i] = string(list[i])
	}
	return strings.Join(s, ", ")
}

// fullName is the name of an optimizer with its implementation.
func (k kind) fullName(i Implementation) string {
	if i == k.standard {
		return k.name
	}
	return k.name + "-" + string(i)
}

// resolve checks the options and fills in defaults.
func (o *Options) resolve(name string) error {
	sgd, adam := strings.HasPrefix(name, "sgd"), name == "adam" || name == "adamw"
	adafactor := name == "adafactor"
	for _, f := range []struct {
		name     string
		set, has bool
	}{
		{"momentum", o.Momentum != 0, sgd},
		{"dampening", o.Dampening != 0, sgd},
		{"nesterov", o.Nesterov, sgd},
		{"betas", o.Betas != nil, adam},
		{"amsgrad", o.AMSGrad, adam},
		{"eps", o.Eps != 0, adam || adafactor},
		{"eps2", o.Eps2 != 0, adafactor},
		{"beta2_decay", o.Beta2Decay != 0, adafactor},
		{"clip_threshold", o.ClipThreshold != 0, adafactor},
	} {
		if f.set && !f.has {
			return fmt.Errorf("it has no option %s", f.name)
		}
	}
	decay := 0.0
	if name == "adamw" {
		decay = 0.01
	}
	if o.WeightDecay != nil {
		decay = *o.WeightDecay
	}
	o.WeightDecay = &decay
	if name == "sgd-momentum" && o.Momentum == 0 {
		o.Momentum = 0.9
	}
	betas := [2]float64{0.9, 0.999}
	if o.Betas != nil {
		betas = *o.Betas
	}
	if adam {
		o.Betas = &betas
		orDefault(&o.Eps, 1e-8)
	}
	if adafactor {
		orDefault(&o.Eps2, 1e-3)
		orDefault(&o.Beta2Decay, -0.8)
		orDefault(&o.ClipThreshold, 1)
	}
	return o.validate(betas, adafactor)
}

func orDefault(v *float64, d float64) {
	if *v == 0 {
		*v = d
	}
}

func (o *Options) validate(betas [2]float64, adafactor bool) error {
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
	for i, b := range betas {
		if !(b >= 0 && b < 1) {
			return fmt.Errorf("beta%d %v: it must be in [0, 1)", i+1, b)
		}
	}
	if math.IsNaN(o.Dampening) || math.IsInf(o.Dampening, 0) {
		return fmt.Errorf("dampening %v: it must be a finite number", o.Dampening)
	}
	if o.Nesterov && (o.Momentum == 0 || o.Dampening != 0) {
		return fmt.Errorf("nesterov needs momentum and no dampening")
	}
	if adafactor && !(o.Beta2Decay <= 0) {
		return fmt.Errorf("beta2_decay %v: it must be 0 or less", o.Beta2Decay)
	}
	if adafactor && !(o.ClipThreshold > 0) {
		return fmt.Errorf("clip_threshold %v: it must be greater than 0", o.ClipThreshold)
	}
	return nil
}

// decays says whether a parameter of a rank is decayed.
func (o *Options) decays(rank int) bool {
	return *o.WeightDecay != 0 && (!o.DecayRank2Only || rank >= 2)
}
