//go:build gpu

package cuda

import (
	"maps"
	"slices"
	"testing"

	"github.com/tidemark-lab/tidemark/device/kernel"
)

// The list of kernels that a program without the GPU's code goes by is that of
// the launchers. It needs no card.
func TestLaunchersAreListed(t *testing.T) {
	if have, listed := slices.Sorted(maps.Keys(launchers)), slices.Sorted(slices.Values(kernel.OnCards())); !slices.Equal(have, listed) {
		t.Errorf("launchers for\n%v\nlisted are\n%v", have, listed)
	}
}
