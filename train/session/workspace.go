package session

import (
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
)

// workspaceBlockBytes is the largest single block of a library's workspace.
// PyTorch's traces on an H200 show cuBLAS taking 32 MiB and cuBLASLt 1 MiB.
const workspaceBlockBytes = 32 << 20

// workspace is the memory that a matrix library keeps from its first product
// on.
type workspace struct {
	bytes  int64
	taken  bool
	blocks []*memory
}

// workspaceUser is a device whose matrix library works in memory that it is
// given.
type workspaceUser interface {
	SetWorkspace(blocks []device.Tensor) error
}

// take allocates the workspace at the first product.
func (w *workspace) take(s *Session) error {
	if w.taken {
		return nil
	}
	w.taken = true
	label := instrument.Label{Category: instrument.Workspace, Op: "matrix product"}
	var tensors []device.Tensor
	for left := w.bytes; left > 0; left -= workspaceBlockBytes {
		n := min(left, workspaceBlockBytes)
		m, err := s.allocate(n, s.tag(label), label)
		if err != nil {
			return err
		}
		w.blocks = append(w.blocks, m)
		tensors = append(tensors, device.Tensor{
			Spec: device.Spec{DType: device.Uint8, Shape: []int{int(n)}}, Addr: m.block.Addr()})
	}
	if u, ok := s.dev.(workspaceUser); ok && len(tensors) > 0 {
		return u.SetWorkspace(tensors)
	}
	return nil
}
