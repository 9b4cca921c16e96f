package op

import (
	"github.com/tidemark-lab/tidemark/device"
)

// CopyDescription describes a copy of a value.
//
// Kernel: copy (no attributes) x → x.
func CopyDescription(s device.Spec) Description {
	return Description{
		Kernel: "copy",
		In:     []device.Spec{s},
		Out:    s,
		Host: func(c *device.Call) error {
			copy(c.Out[0].RawBytes(), c.In[0].RawBytes())
			return nil
		},
	}
}
