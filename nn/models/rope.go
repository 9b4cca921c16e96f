package models

import (
	"fmt"
	"maps"
	"slices"
	"strings"
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

// rope is the base of the rotary frequencies and the type of their scaling: of
// rope_parameters, of rope_scaling in files from before version 5, and of
// rope_theta, which is beside them or within the first.
func (r *reader) rope() (theta float64, kind string) {
	theta, kind = r.number("rope_theta", 10000), defaultRope
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		v := r.values[key]
		if v == nil {
			continue
		}
		m, ok := v.(map[string]any)
		if !ok {
			r.fail("%s is %s: it must be an object, such as {\"rope_type\": \"default\", \"rope_theta\": 10000.0}", key, shorten(v))
			continue
		}
		inner := reader{values: m}
		theta, kind = inner.ropeEntry(theta, kind)
		if inner.err != nil {
			r.fail("%s: %w", key, inner.err)
		}
	}
	return theta, kind
}

func (r *reader) ropeEntry(theta float64, kind string) (float64, string) {
	for _, k := range slices.Sorted(maps.Keys(r.values)) {
		if !slices.Contains(ropeKeys, k) {
			r.fail("%s is not known: there is %s", k, strings.Join(ropeKeys, ", "))
		}
	}
	if t := r.text("rope_type", r.text("type", "")); t == "mrope" {
		r.fail("rope_type is mrope: positions are of text")
	} else if t != "" {
		kind = t
	}
	if !slices.Contains(ropeTypes, kind) {
		r.fail("rope_type %q is not known: there is %s", kind, strings.Join(ropeTypes, ", "))
	}
	if r.number("partial_rotary_factor", 1) != 1 {
		r.fail("partial_rotary_factor is %s: whole heads are rotated", fmt.Sprint(r.values["partial_rotary_factor"]))
	}
	if kind != defaultRope && kind != "yarn" && kind != "longrope" && kind != "proportional" && r.values["factor"] == nil {
		r.fail("factor is missing: rope_type %s has one", kind)
	}
	for _, k := range []string{"factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "low_freq_factor", "high_freq_factor"} {
		r.number(k, 1)
	}
	return r.number("rope_theta", theta), kind
}
