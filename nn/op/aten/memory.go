package aten

import (
	"github.com/tidemark-lab/tidemark/nn/op"
)

// memoryScript collects MemorySteps.
type memoryScript struct {
	steps       []op.MemoryStep
	temporaries int
}

// result takes memory for result n.
func (m *memoryScript) result(n int) *memoryScript {
	m.steps = append(m.steps, op.MemoryStep{Kind: op.TakeResult, N: n})
	return m
}

// temporary takes bytes and returns the temporary's number.
func (m *memoryScript) temporary(bytes int64) int {
	m.steps = append(m.steps, op.MemoryStep{Kind: op.TakeTemporary, Bytes: bytes})
	m.temporaries++
	return m.temporaries - 1
}

// drop gives temporaries back.
func (m *memoryScript) drop(numbers ...int) *memoryScript {
	for _, n := range numbers {
		m.steps = append(m.steps, op.MemoryStep{Kind: op.DropTemporary, N: n})
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
