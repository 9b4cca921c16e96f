package instrument

import (
	"fmt"
	"strings"
)

// Category is what a block of memory is for.
type Category uint8

// The categories. Other is the zero value: memory that nobody labelled.
const (
	Other Category = iota
	// Parameter is a weight of the model.
	Parameter
	// OptimizerState lives from one optimizer step to the next.
	OptimizerState
	// Workspace belongs to a library, such as cuBLAS, for as long as it is used.
	Workspace
	// Cache is keys and values of earlier tokens, kept while text is generated.
	Cache
	// Gradient is the gradient of a parameter.
	Gradient
	// Activation is made in the forward pass and read in the backward pass.
	Activation
	// Input is a batch: tokens, targets, features.
	Input
	// Temporary dies in the phase in which it was made.
	Temporary
	// OptimizerTemporary dies within the optimizer step.
	OptimizerTemporary

	// NumCategories is the number of categories.
	NumCategories = int(OptimizerTemporary) + 1
)

var categoryNames = [NumCategories]string{
	Other:              "other",
	Parameter:          "parameter",
	OptimizerState:     "optimizer_state",
	Workspace:          "workspace",
	Cache:              "cache",
	Gradient:           "gradient",
	Activation:         "activation",
	Input:              "input",
	Temporary:          "temporary",
	OptimizerTemporary: "optimizer_temporary",
}

// Categories lists all categories in stacking order, from the bottom of a
// timeline to its top: the longer-lived lower, memory of unknown purpose last.
func Categories() []Category {
	return []Category{Parameter, OptimizerState, Workspace, Cache, Gradient, Activation, Input,
		Temporary, OptimizerTemporary, Other}
}

// String is the category's name in reports, such as "optimizer_state".
func (c Category) String() string {
	if int(c) < NumCategories {
		return categoryNames[c]
	}
	return fmt.Sprintf("category(%d)", uint8(c))
}

// MarshalText gives the category's name; it fails for a value that is none of
// the constants.
func (c Category) MarshalText() ([]byte, error) {
	if int(c) >= NumCategories {
		return nil, fmt.Errorf("no category has number %d", uint8(c))
	}
	return []byte(categoryNames[c]), nil
}

// UnmarshalText accepts the names that MarshalText gives.
func (c *Category) UnmarshalText(text []byte) error {
	for i, name := range categoryNames {
		if name == string(text) {
			*c = Category(i)
			return nil
		}
	}
	return fmt.Errorf("unknown category %q: want one of %s", text, strings.Join(names(), ", "))
}

func names() []string {
	list := make([]string, 0, NumCategories)
	for _, c := range Categories() {
		list = append(list, c.String())
	}
	return list
}
