package snapshot

import (
	"fmt"
	"math"
	"unsafe"
)

const (
	maxBytes   = 1 << 50 // of any size
	maxAddr    = 1 << 60
	entryBytes = int64(unsafe.Sizeof(TraceEntry{}))
)

// noteKey is a Note whose texts are not looked up.
type noteKey struct {
	category, compileContext, userMetadata textID
	pool                                   PoolID
}

// decodeEntry sets what items, keys and values in turn, say of an entry.
func (m *machine) decodeEntry(e *TraceEntry, items []value) error {
	var note noteKey
	if e.Note != 0 { // of an entry that was set before
		note = m.noteKey(m.out.Note(e.Note))
	}
	for i := 0; i+1 < len(items); i += 2 {
		if items[i].kind() != isText {
			continue
		}
		if err := m.decodeField(e, &note, textID(items[i].number()), items[i+1]); err != nil {
			return err
		}
	}
	if e.Action == Other {
		*e = TraceEntry{TimeMicros: e.TimeMicros, DeviceFreeBytes: -1}
		return nil
	}
	e.Note = m.noteOf(note)
	return nil
}

func (m *machine) decodeField(e *TraceEntry, note *noteKey, key textID, v value) (err error) {
	switch key {
	case keyAction:
		if v.kind() != isText {
			return m.errNot(key, v, "a string")
		}
		e.Action = Other
		if n := v.number() - int64(keyActions); n >= 0 && n < int64(len(actionNames)) {
			e.Action = Action(n)
		}
	case keyAddr:
		var n int64
		n, err = m.bounded(key, v, 0, maxAddr)
		e.Addr = uint64(n)
	case keySize:
		e.Bytes, err = m.bounded(key, v, 0, maxBytes)
	case keyStream:
		var n int64
		n, err = m.bounded(key, v, math.MinInt64, math.MaxInt64)
		e.Stream = int(n)
	case keyTime:
		e.TimeMicros, err = m.bounded(key, v, math.MinInt64, math.MaxInt64)
	case keyDeviceFree:
		e.DeviceFreeBytes, err = m.bounded(key, v, 0, maxBytes)
	case keyFrames:
		e.Stack, err = m.stackOf(v)
	case keyCategory:
		note.category = textOf(v)
	case keyCompileContext:
		if note.compileContext = textOf(v); note.compileContext == keyNA {
			note.compileContext = keyNone
		}
	case keyUserMetadata, keyUserDefined:
		if t := textOf(v); t != keyNone {
			note.userMetadata = t
		}
	case keyPoolID, keySegmentPoolID:
		note.pool = m.pool(v)
	}
	return err
}

func textOf(v value) textID {
	if v.kind() != isText {
		return keyNone
	}
	return textID(v.number())
}

// stackOf is the stack that a value of frames gives, 0 for none.
func (m *machine) stackOf(v value) (StackID, error) {
	if v.kind() != isObject {
		return 0, nil
	}
	switch o := m.objects[v.number()]; o.form() {
	case aStack:
		return StackID(o.number()), nil
	case aList:
		for _, item := range m.lists[o.number()].items {
			if item.kind() != isObject || m.objects[item.number()].form() != aFrame {
				return 0, fmt.Errorf("frames holds %s, not frames of filename, line and name", m.describe(item))
			}
		}
	}
	return 0, nil
}

// pool is a pair of integers, the default pool for anything else.
func (m *machine) pool(v value) (p PoolID) {
	if l, ok := m.list(v); ok && len(l.items) == 2 {
		for i := range p {
			p[i], _ = m.integer(l.items[i])
		}
	}
	return p
}

func (m *machine) bounded(key textID, v value, least, most int64) (int64, error) {
	n, ok := m.integer(v)
	if !ok {
		return 0, m.errNot(key, v, "an integer of 64 bits")
	}
	if n < least || n > most {
		return 0, fmt.Errorf("%s %d is not between %d and %d", m.texts.list[key], n, least, most)
	}
	return n, nil
}

// missing says which field an entry of items needs and lacks.
func (m *machine) missing(e *TraceEntry, items []value) error {
	switch e.Action {
	case Other, Taken, UserDefined:
		return nil
	}
	d := dict{items: items}
	for _, key := range []textID{keyAddr, keySize, keyStream} {
		if (key != keyAddr || e.Action != OOM) && !d.has(key) {
			return fmt.Errorf("%s is missing", m.texts.list[key])
		}
	}
	return nil
}

// noteOf is the id of a note, most often the one of the entry before.
func (m *machine) noteOf(k noteKey) NoteID {
	if k == m.note {
		return m.noteID
	}
	before := m.out.Notes()
	m.note, m.noteID = k, m.out.AddNote(Note{Category: m.texts.list[k.category], CompileContext: m.texts.list[k.compileContext],
		UserMetadata: m.texts.list[k.userMetadata], Pool: k.pool})
	if m.out.Notes() > before {
		m.budget.spend(200)
	}
	return m.noteID
}

func (m *machine) noteKey(n Note) noteKey {
	return noteKey{m.texts.key(n.Category), m.texts.key(n.CompileContext), m.texts.key(n.UserMetadata), n.Pool}
}
