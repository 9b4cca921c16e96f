package op

// MemoryKind says what a MemoryStep does.
type MemoryKind uint8

// What happens to memory in the course of a call.
const (
	TakeResult    MemoryKind = iota // memory for result N: 0 is Out, then the Extras
	TakeTemporary                   // memory of Bytes bytes that does not outlive the call
	DropTemporary                   // the N-th temporary taken so far, from 0, goes
)

// MemoryStep is one act of an operation's memory. A library's operation is
// often several kernels with temporaries between them, and when they come and
// go decides where memory peaks.
type MemoryStep struct {
	Kind  MemoryKind
	N     int
	Bytes int64
}
