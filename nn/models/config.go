// Package models holds the model families: how a config is read, the modules
// that it describes, and presets of published shapes.
package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/tidemark-lab/tidemark/nn"
)

// Config is the shape of a model: the content of a config.json, ours or one of
// Hugging Face's of a known family.
type Config struct {
	values map[string]any
}

// maxConfigBytes bounds a config file; real ones have a few kilobytes.
const maxConfigBytes = 1 << 20

// ReadConfig reads a config file.
func ReadConfig(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("config: %w", err)
	}
	defer f.Close()
	// A device has no size, so the reading is bounded rather than the file.
	data, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err != nil {
		return Config{}, fmt.Errorf("config: %w", err)
	}
	if len(data) > maxConfigBytes {
		return Config{}, fmt.Errorf("config %s: expected a JSON file of at most %d bytes", path, maxConfigBytes)
	}
	c, err := ParseConfig(data)
	if err != nil {
		return Config{}, fmt.Errorf("config %s: %w", path, err)
	}
	return c, nil
}

// ParseConfig parses a config's JSON and checks that a model can be made of it.
func ParseConfig(data []byte) (Config, error) {
	var values map[string]any
	if err := json.Unmarshal(data, &values); err != nil {
		return Config{}, fmt.Errorf("it is not a JSON object: %w", err)
	}
	c := Config{values}
	if _, err := New(c); err != nil {
		return Config{}, err
	}
	return c, nil
}

// Type is the config's model_type.
func (c Config) Type() string {
	s, _ := c.values["model_type"].(string)
	return s
}

// MarshalJSON writes the config as it was read.
func (c Config) MarshalJSON() ([]byte, error) { return json.Marshal(c.values) }

// UnmarshalJSON reads and checks a config.
func (c *Config) UnmarshalJSON(data []byte) error {
	p, err := ParseConfig(data)
	if err == nil {
		*c = p
	}
	return err
}

// With returns the config with keys replaced.
func (c Config) With(changes map[string]any) Config {
	v := make(map[string]any, len(c.values)+len(changes))
	for k, x := range c.values {
		v[k] = x
	}
	for k, x := range changes {
		v[k] = x
	}
	return Config{v}
}

// insteadOf says what to give of configs whose language model is a part of them.
var insteadOf = map[string]string{
	"gemma3": "it is a model of images and text; of its parts the language model is there: give its text_config, whose model_type is gemma3_text",
}

// New makes the model that a config describes. Parameters have no values yet.
func New(c Config) (nn.Module, error) {
	r := reader{values: c.values}
	kind := r.text("model_type", "")
	if kind == "" {
		return nil, fmt.Errorf("model_type is missing: it is one of %s", strings.Join(Families(), ", "))
	}
	f := familyOf(kind)
	if f == nil && insteadOf[kind] != "" {
		return nil, fmt.Errorf("model_type %q: %s", kind, insteadOf[kind])
	}
	if f == nil {
		return nil, fmt.Errorf("model_type %q is not known: there is %s", kind, strings.Join(Families(), ", "))
	}
	r.checkKeys(f)
	build := f.read(&r)
	var m nn.Module
	if r.err == nil {
		m = build()
		r.err = countable(m)
	}
	if r.err != nil {
		return nil, fmt.Errorf("%s config: %w", kind, r.err)
	}
	return m, nil
}

// reader takes values out of a config and keeps the first error.
type reader struct {
	values map[string]any
	err    error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// maxSize bounds a single dimension.
const maxSize = 1 << 31

// size is a needed positive whole number.
func (r *reader) size(key string) int {
	if v, ok := r.values[key]; !ok || v == nil {
		r.fail("%s is missing", key)
		return 1
	}
	return r.sizeOr(key, 1)
}

// sizeOr is a positive whole number, or a default when the key is absent.
func (r *reader) sizeOr(key string, def int) int {
	v, ok := r.values[key]
	if !ok || v == nil {
		return def
	}
	n, err := whole(v)
	if err != nil || n < 1 || n >= maxSize {
		r.fail("%s is %v: it must be a whole number from 1 to %d", key, v, maxSize-1)
		return 1
	}
	return n
}

// maxDepth bounds the number of layers; the deepest published models have some
// hundreds.
const maxDepth = 512

// depth is a needed number of layers.
func (r *reader) depth(key string) int {
	n := r.size(key)
	if n > maxDepth {
		r.fail("%s is %d: it must be at most %d", key, n, maxDepth)
		return 1
	}
	return n
}

func whole(v any) (int, error) {
	switch v := v.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int(v), nil
		}
	case int:
		return v, nil
	}
	return 0, errors.New("not a whole number")
}

func (r *reader) number(key string, def float64) float64 {
	switch v := r.values[key].(type) {
	case nil:
		return def
	case float64:
		if v > 0 && !math.IsInf(v, 0) {
			return v
		}
	case int:
		if v > 0 {
			return float64(v)
		}
	}
	r.fail("%s is %v: it must be a number above 0", key, r.values[key])
	return def
}

func (r *reader) probability(key string, def float64) float64 {
	switch v := r.values[key].(type) {
	case nil:
		return def
	case float64:
		if v >= 0 && v < 1 {
			return v
		}
	case int:
		if v == 0 {
			return 0
		}
	}
	r.fail("%s is %v: it must be from 0 up to, but not including, 1", key, r.values[key])
	return def
}

func (r *reader) text(key, def string) string {
	switch v := r.values[key].(type) {
	case nil:
		return def
	case string:
		return v
	}
	r.fail("%s is %v: it must be a string", key, r.values[key])
	return def
}

func (r *reader) flag(key string, def bool) bool {
	switch v := r.values[key].(type) {
	case nil:
		return def
	case bool:
		return v
	}
	r.fail("%s is %v: it must be true or false", key, r.values[key])
	return def
}

func (r *reader) divides(smallKey string, small int, largeKey string, large int) {
	if r.err == nil && large%small != 0 {
		r.fail("%s %d does not divide %s %d", smallKey, small, largeKey, large)
	}
}
