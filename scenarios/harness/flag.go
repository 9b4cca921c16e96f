package harness

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/precision"
)

// Flag is a setting of a scenario that its user can choose.
type Flag struct {
	Name  string // without dashes
	Usage string
	// Default is the value when none is given: a string, bool, int, int64,
	// float64, []int or []string, which is also the type of every other value.
	Default any
	// Small, unless nil, is the default on the processor, where an experiment at
	// full size would take hours.
	Small any
}

// DefaultOn is the default on a kind of device.
func (f Flag) DefaultOn(kind device.Kind) any {
	if kind.OnHost && f.Small != nil {
		return f.Small
	}
	return f.Default
}

// Describe is the usage with the defaults.
func (f Flag) Describe() string {
	s := f.Usage
	if d := Format(f.Default); d != "" && d != "false" {
		s += " (default: " + d
		if f.Small != nil {
			s += "; on " + device.KindCPU.Name + " " + Format(f.Small)
		}
		s += ")"
	}
	return s
}

// Parse reads a value. Its error names the flag and says what would be right.
func (f Flag) Parse(text string) (any, error) {
	bad := func(want string) error { return fmt.Errorf("--%s %.80q: it must be %s", f.Name, text, want) }
	switch f.Default.(type) {
	case string:
		return text, nil
	case bool:
		v, err := strconv.ParseBool(text)
		if err != nil {
			return nil, bad("true or false")
		}
		return v, nil
	case int:
		v, err := strconv.Atoi(text)
		if err != nil {
			return nil, bad("a whole number")
		}
		return v, nil
	case int64:
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, bad("a whole number")
		}
		return v, nil
	case float64:
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(v) {
			return nil, bad("a number")
		}
		return v, nil
	case []int:
		var list []int
		for _, part := range strings.Split(text, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(part))
			if err != nil {
				return nil, bad("whole numbers with commas between them")
			}
			list = append(list, n)
		}
		return list, nil
	}
	if _, ok := f.Default.([]string); ok {
		list := strings.Split(text, ",")
		for i := range list {
			if list[i] = strings.TrimSpace(list[i]); list[i] == "" {
				return nil, bad("names with commas between them")
			}
		}
		return list, nil
	}
	panic(fmt.Sprintf("scenarios: flag %s has a default of type %T", f.Name, f.Default))
}

// Format is a value as Parse takes it.
func Format(v any) string {
	if list, ok := v.([]int); ok {
		parts := make([]string, len(list))
		for i, n := range list {
			parts[i] = strconv.Itoa(n)
		}
		return strings.Join(parts, ",")
	}
	if list, ok := v.([]string); ok {
		return strings.Join(list, ",")
	}
	return fmt.Sprint(v)
}

// Values are the values of a scenario's flags.
type Values struct {
	// Precision is what the models train in (train.Settings.Precision).
	Precision precision.Precision
	all       map[string]any
	given     map[string]bool
}

// Resolve parses the values that were given, by name of the flag, and fills in
// the defaults for a kind of device.
func (s Scenario) Resolve(kind device.Kind, given map[string]string) (Values, error) {
	v := Values{all: map[string]any{}, given: map[string]bool{}}
	for _, f := range s.Flags {
		v.all[f.Name] = f.DefaultOn(kind)
		text, ok := given[f.Name]
		if !ok {
			continue
		}
		value, err := f.Parse(text)
		if err != nil {
			return Values{}, err
		}
		v.all[f.Name], v.given[f.Name] = value, true
	}
	for name := range given {
		if _, ok := v.all[name]; !ok {
			return Values{}, fmt.Errorf("--%s: %s has no such setting", name, s.Name)
		}
	}
	return v, nil
}

// value is the value of a flag that the scenario declares.
func value[T any](v Values, name string) T {
	x, ok := v.all[name].(T)
	if !ok {
		panic(fmt.Sprintf("scenarios: flag %s is not declared as a %T", name, x))
	}
	return x
}

// Given says whether a flag was given rather than defaulted.
func (v Values) Given(name string) bool { return v.given[name] }

func (v Values) Text(name string) string      { return value[string](v, name) }
func (v Values) number(name string) int       { return value[int](v, name) }
func (v Values) Bytes(name string) int64      { return value[int64](v, name) }
func (v Values) Fraction(name string) float64 { return value[float64](v, name) }
func (v Values) Names(name string) []string   { return value[[]string](v, name) }
func (v Values) Numbers(name string) []int    { return value[[]int](v, name) }

// Within is a whole number between bounds.
func (v Values) Within(name string, least, most int) (int, error) {
	n := v.number(name)
	if n < least || n > most {
		return 0, fmt.Errorf("--%s %d: it must be from %d to %d", name, n, least, most)
	}
	return n, nil
}

// AllWithin is a list of different whole numbers between bounds.
func (v Values) AllWithin(name string, least, most int) ([]int, error) {
	list := v.Numbers(name)
	if err := Distinct(name, list); err != nil {
		return nil, err
	}
	for _, n := range list {
		if n < least || n > most {
			return nil, fmt.Errorf("--%s %s: every number must be from %d to %d", name, Format(list), least, most)
		}
	}
	return list, nil
}

// Distinct refuses a list that has something twice: each is a run of its own,
// known by its name.
func Distinct[T comparable](name string, list []T) error {
	seen := map[T]bool{}
	for _, x := range list {
		if seen[x] {
			return fmt.Errorf("--%s %s: %v comes twice", name, Format(list), x)
		}
		seen[x] = true
	}
	return nil
}

// MaxWorkspaceBytes bounds the workspace that can be asked for, far above what any library takes.
const MaxWorkspaceBytes = 1 << 40

// WorkspaceFlag is the setting of every scenario that runs matrix products.
func WorkspaceFlag() Flag {
	return Flag{Name: "workspace-bytes", Default: int64(0),
		Usage: "what the matrix library keeps from its first product on (assumed, unless on cuda)"}
}

func (v Values) Workspace() (int64, error) {
	n := v.Bytes("workspace-bytes")
	if n < 0 || n > MaxWorkspaceBytes {
		return 0, fmt.Errorf("--workspace-bytes %d: it must be between 0 and 2^40", n)
	}
	return n, nil
}
