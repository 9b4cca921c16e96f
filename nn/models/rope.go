package models

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/tidemark-lab/tidemark/device/kernel"
)

// defaultRope is the type of rotary positions without scaling.
const defaultRope = "default"

// ropeKeys are the keys that rope_parameters and rope_scaling may have in any
// type that transformers knows, and ropeTypes those types: none changes the size
// of anything.
var (
	ropeTypes = []string{defaultRope, "linear", "dynamic", "yarn", "longrope", "llama3", "proportional"}
	ropeKeys  = []string{"rope_type", "type", "rope_theta", "factor", "original_max_position_embeddings", "attention_factor",
		"beta_fast", "beta_slow", "short_factor", "long_factor", "low_freq_factor", "high_freq_factor", "mscale", "mscale_all_dim",
		"truncate", "finetuned", "partial_rotary_factor"}
)

// rope is the rotary positions that a config asks for.
type rope struct {
	kind    string
	unknown bool // the memory is known, the values are not
	table   kernel.RotaryTable
}

// ropeDefaults are what a family has where its config says nothing; 0 is Llama's.
type ropeDefaults struct {
	theta float64
	// turned is the part of a head that is turned; 0 where it is all of it
	// whatever a config says.
	turned float64
}

// rope reads the rotary positions of heads of so many elements in a model of so
// many positions: of rope_parameters, of rope_scaling in files from before
// version 5, and of rope_theta, which is beside them or within the first.
//
// def are its family's defaults.
func (r *reader) rope(head, context int, def ropeDefaults) rope {
	all := map[string]any{}
	if v := r.values["rope_theta"]; v != nil {
		all["rope_theta"] = v
		r.number("rope_theta", 1)
	}
	key := "rope_parameters"
	for _, k := range []string{"rope_scaling", "rope_parameters"} {
		v := r.values[k]
		if v == nil {
			continue
		}
		m, ok := v.(map[string]any)
		if !ok {
			r.fail("%s is %s: it must be an object, such as {\"rope_type\": \"default\", \"rope_theta\": 10000.0}", k, shorten(v))
			continue
		}
		maps.Copy(all, m)
		key = k
	}
	if v := r.values["original_max_position_embeddings"]; v != nil {
		all["original_max_position_embeddings"] = v
	}
	if v := r.values["partial_rotary_factor"]; v != nil && def.turned > 0 && all["partial_rotary_factor"] == nil {
		all["partial_rotary_factor"] = v
	}
	inner := reader{values: all}
	p := inner.ropeEntry(head, context, def)
	if inner.err != nil {
		r.fail("%s: %w", key, inner.err)
	}
	return p
}

func (r *reader) ropeEntry(head, context int, def ropeDefaults) rope {
	for _, k := range slices.Sorted(maps.Keys(r.values)) {
		if !slices.Contains(ropeKeys, k) {
			r.fail("%s is not known: there is %s", k, strings.Join(ropeKeys, ", "))
		}
	}
	p := rope{kind: r.text("rope_type", r.text("type", defaultRope))}
	switch {
	case p.kind == "mrope":
		r.fail("rope_type is mrope: positions are of text")
	case !slices.Contains(ropeTypes, p.kind):
		r.fail("rope_type %q is not known: there is %s", p.kind, strings.Join(ropeTypes, ", "))
	}
	part := r.number("partial_rotary_factor", cmp.Or(def.turned, 1))
	if part > 1 || def.turned == 0 && part != 1 {
		r.fail("partial_rotary_factor is %s: whole heads are rotated", fmt.Sprint(r.values["partial_rotary_factor"]))
	}
	if head%2 != 0 {
		r.fail("head dimension %d is odd: rotary embedding rotates halves", head)
	}
	size := int(float64(head) * part)
	if size%2 != 0 || size == 0 {
		r.fail("%d elements of a head of %d are rotated: rotary embedding rotates halves", size, head)
	}
	p.table = kernel.RotaryTable{Size: size, Theta: r.number("rope_theta", cmp.Or(def.theta, 10000))}
	p.table.Scaling, p.unknown = r.ropeScaling(p.kind, float64(context))
	return p
}

// ropeScaling reads how frequencies are scaled. Dynamic scaling begins beyond the
// model's context, where no sequence is.
func (r *reader) ropeScaling(kind string, context float64) (s kernel.RotaryScaling, unknown bool) {
	needed := func(k string) float64 {
		if r.values[k] == nil {
			r.fail("%s is missing: rope_type %s has one", k, kind)
		}
		return r.number(k, 1)
	}
	for _, k := range []string{"factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow",
		"low_freq_factor", "high_freq_factor", "mscale", "mscale_all_dim"} {
		r.number(k, 1)
	}
	original := r.number("original_max_position_embeddings", context)
	switch kind {
	case "linear":
		return kernel.RotaryScaling{Kind: kernel.RotaryLinear, Factor: needed("factor")}, false
	case "dynamic":
		needed("factor")
	case "llama3":
		return kernel.RotaryScaling{Kind: kernel.RotaryLlama3, Factor: needed("factor"), Original: original,
			LowFactor: needed("low_freq_factor"), HighFactor: needed("high_freq_factor")}, false
	case "yarn":
		s = kernel.RotaryScaling{Kind: kernel.RotaryYaRN, Original: original, Factor: r.number("factor", context/original),
			BetaFast: r.number("beta_fast", 32), BetaSlow: r.number("beta_slow", 1), Exact: !r.flag("truncate", true)}
		s.Gain = yarnGain(s.Factor, 1)
		if m, all := r.number("mscale", 0), r.number("mscale_all_dim", 0); m > 0 && all > 0 {
			s.Gain = yarnGain(s.Factor, m) / yarnGain(s.Factor, all)
		}
		s.Gain = r.number("attention_factor", s.Gain)
		return s, false
	case defaultRope:
	default:
		return s, true
	}
	return s, false
}

// yarnGain is by how much yarn raises the attention's temperature.
func yarnGain(factor, scale float64) float64 {
	if factor <= 1 {
		return 1
	}
	return 0.1*scale*math.Log(factor) + 1
}
