package models

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

//go:embed presets.json
var presetsFile []byte

// presets are shapes by name. Those of published models are their config.json
// files, reduced to what decides shape and computation.
var presets = func() map[string]map[string]any {
	var all map[string]map[string]any
	if err := json.Unmarshal(presetsFile, &all); err != nil {
		panic(err) // the file is part of the program
	}
	return all
}()

// Presets lists the names that Preset knows.
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

// Preset is the config of a name.
func Preset(name string) (Config, error) {
	v, ok := presets[name]
	if !ok {
		return Config{}, fmt.Errorf("unknown preset %q: there is %s", name, strings.Join(Presets(), ", "))
	}
	return Config{maps.Clone(v)}, nil
}
