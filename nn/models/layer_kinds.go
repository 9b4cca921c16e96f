package models

import "slices"

// layerKinds are which layers of a model attend in a window.
type layerKinds struct {
	sliding []bool // by layer
}

// periodOf is after how many layers their kinds come again.
func periodOf[K comparable](kinds []K) int {
	for n := 1; n < len(kinds); n++ {
		if slices.Equal(kinds[n:], kinds[:len(kinds)-n]) {
			return n
		}
	}
	return len(kinds)
}

// layer is the config of layer i.
func (c decoderConfig) layer(i int) decoderConfig {
	if c.Kinds != nil && !c.Kinds.sliding[i] {
		c.Window = 0
	}
	return c
}

// has reports whether a layer has a window, or with false whether one has none.
func (c decoderConfig) has(window bool) bool {
	for i := range c.Layers {
		if (c.layer(i).Window > 0) == window {
			return true
		}
	}
	return false
}

// local says that a layer has the rotary positions of those with a window.
func (c decoderConfig) local() bool { return c.LocalRope != nil && c.Window > 0 }

// windows are those of the masks that transformers' model makes before its layers,
// 0 for all keys: one where layers are alike, or one for all keys and one for the
// window.
func (c decoderConfig) windows() []int {
	switch {
	case c.Kinds == nil:
		return []int{c.Window}
	case c.Window == 0:
		return []int{0}
	}
	return []int{0, c.Window}
}
