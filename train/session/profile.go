package session

import (
	"fmt"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument"
)

// Profile is what PyTorch's matrix libraries take from the allocator on a
// generation of cards, and keep. Each of the two threads that compute, the
// program's and the one that runs backward, has a workspace of its own from its
// first matrix product on, and one for products that add a bias from its first
// of those on. The sizes are assumed: they are in no model.
type Profile struct {
	Name string
	// ProductBytes and BiasBytes are the two workspaces of a thread.
	ProductBytes, BiasBytes int64
}

// profiles are PyTorch's defaults for cuBLAS and cuBLASLt on compute capability
// 9.0, as traces on an H200 show them.
var profiles = []Profile{
	{Name: "h200", ProductBytes: 32 << 20, BiasBytes: 1 << 20},
	{Name: "h100", ProductBytes: 32 << 20, BiasBytes: 1 << 20},
	{Name: "none"},
}

// Profiles lists the names that FindProfile knows.
func Profiles() []string {
	var names []string
	for _, p := range profiles {
		names = append(names, p.Name)
	}
	return names
}

// FindProfile is the profile of a name.
func FindProfile(name string) (Profile, error) {
	for _, p := range profiles {
		if p.Name == name {
			return p, nil
		}
	}
	return Profile{}, fmt.Errorf("unknown profile %q: there is %s", name, strings.Join(Profiles(), ", "))
}

// Bytes is the most that the two threads take together.
func (p Profile) Bytes() int64 { return 2 * (p.ProductBytes + p.BiasBytes) }

// libraries are the workspaces taken so far, by thread.
type libraries struct {
	profile Profile
	product [2]bool
	bias    [2]bool
}

// take takes what a matrix product needs that is not there yet.
func (l *libraries) take(s *Session, backward bool, kernel string) error {
	thread := 0
	if backward {
		thread = 1
	}
	take := func(taken *bool, bytes int64, what string) error {
		if *taken || bytes == 0 {
			return nil
		}
		*taken = true
		label := instrument.Label{Category: instrument.Workspace, Op: what}
		_, err := s.allocate(bytes, s.tag(label), label)
		return err
	}
	if err := take(&l.product[thread], l.profile.ProductBytes, "cuBLAS workspace"); err != nil {
		return err
	}
	if kernel != "aten.addmm" {
		return nil
	}
	return take(&l.bias[thread], l.profile.BiasBytes, "cuBLASLt workspace")
}
