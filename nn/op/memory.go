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

// memoryScript collects MemorySteps.
type memoryScript struct {
	steps       []MemoryStep
	temporaries int
}

// result takes memory for result n.
func (m *memoryScript) result(n int) *memoryScript {
	m.steps = append(m.steps, MemoryStep{Kind: TakeResult, N: n})
	return m
}

// temporary takes bytes and returns the temporary's number.
func (m *memoryScript) temporary(bytes int64) int {
	m.steps = append(m.steps, MemoryStep{Kind: TakeTemporary, Bytes: bytes})
	m.temporaries++
	return m.temporaries - 1
}

// drop gives temporaries back.
func (m *memoryScript) drop(numbers ...int) *memoryScript {
	for _, n := range numbers {
		m.steps = append(m.steps, MemoryStep{Kind: DropTemporary, N: n})
	}
	return m
}

// passing takes temporaries that exist together and gives them back.
func (m *memoryScript) passing(bytes ...int64) *memoryScript {
	var taken []int
	for _, n := range bytes {
		taken = append(taken, m.temporary(n))
	}
	for i := len(taken) - 1; i >= 0; i-- {
		m.drop(taken[i])
	}
	return m
}
