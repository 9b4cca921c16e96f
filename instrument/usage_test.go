package instrument

import "testing"

func TestByCategoryAsText(t *testing.T) {
	for want, b := range map[string]ByCategory{
		"nothing":           {},
		"input 3 B (100 %)": {Input: 3},
		"activation 674.9 MiB (73 %), optimizer state 252.1 MiB (27 %), parameter 1.0 KiB (<1 %)": {
			Parameter: 1024, OptimizerState: 264345600, Activation: 707683942},
	} {
		if got := b.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
