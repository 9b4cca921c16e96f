package device

// Kind is a row of the table of devices: what programs ask of a device instead
// of its name. How one is opened by name is the business of package catalog.
type Kind struct {
	Name string // meta, cpu or cuda
	// Computes is false where calls compute nothing: sizes are calculated, no
	// value exists, and nothing takes time.
	Computes bool
	// OnHost says that memory and arithmetic are the processor's: tensors can be
	// read in place, and what is large takes long.
	OnHost bool
	// OwnWorkspace says that the matrix library is really given the workspace
	// that a session takes for it; elsewhere its size is assumed.
	OwnWorkspace bool
	// RoundsProducts says that products of float32 matrices can be told to round
	// their operands.
	RoundsProducts bool
	// Numbered says that there can be several, each with a number.
	Numbered bool
	// BuildTag is what a program must be built with to have it.
	BuildTag string
}

// The kinds of devices.
var (
	KindMeta = Kind{Name: "meta"}
	KindCPU  = Kind{Name: "cpu", Computes: true, OnHost: true}
	KindCUDA = Kind{Name: "cuda", Computes: true, OwnWorkspace: true, RoundsProducts: true, Numbered: true, BuildTag: "gpu"}
)

// String is the kind's name.
func (k Kind) String() string { return k.Name }
