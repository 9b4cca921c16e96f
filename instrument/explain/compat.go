package explain

import (
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// stackTable is every stack of a history, once.
type stackTable struct {
	facts []stackFacts // by stack; 0 is the stack without frames
	byKey map[string]int32
	names names
	frame map[snapshot.Frame]*frameFacts
	lists [][]snapshot.Frame
}

func newStackTable() *stackTable {
	t := &stackTable{byKey: map[string]int32{}, frame: map[snapshot.Frame]*frameFacts{}}
	t.facts = append(t.facts, stackFacts{})
	t.lists = append(t.lists, nil)
	return t
}

func (t *stackTable) id(frames []snapshot.Frame) int32 {
	if len(frames) == 0 {
		return 0
	}
	key := make([]byte, 0, 4096)
	for _, f := range frames {
		key = append(key, f.Filename...)
		key = append(key, byte(f.Line), byte(f.Line>>8), byte(f.Line>>16))
		key = append(key, f.Name...)
	}
	if id, ok := t.byKey[string(key)]; ok {
		return id
	}
	id := int32(len(t.facts))
	t.byKey[string(key)] = id
	t.facts = append(t.facts, stackOf(frames, func(i int) *frameFacts { return t.factsOf(frames[i]) }, &t.names))
	t.lists = append(t.lists, frames)
	return id
}

func (t *stackTable) factsOf(f snapshot.Frame) *frameFacts {
	if p, ok := t.frame[f]; ok {
		return p
	}
	v := frameOf(f)
	t.frame[f] = &v
	return &v
}
