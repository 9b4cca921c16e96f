// Package scenarios holds the experiments: a file each, with what the documents
// claim, the code that reproduces it, and the checks of the claims.
package scenarios

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-lab/tidemark/scenarios/harness"
)

// All lists the scenarios by name.
func All() []harness.Scenario {
	all := []harness.Scenario{
		accumulationScenario(),
		activationsScenario(),
		cachingScenario(),
		checkpointingScenario(),
		formulasScenario(),
		linearScenario(),
		optimizersScenario(),
		peakShiftScenario(),
	}
	slices.SortFunc(all, func(a, b harness.Scenario) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Find is the scenario of a name.
func Find(name string) (harness.Scenario, error) {
	var names []string
	for _, s := range All() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return harness.Scenario{}, fmt.Errorf("unknown scenario %q: there is %s", name, strings.Join(names, ", "))
}
