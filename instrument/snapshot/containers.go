package snapshot

import (
	"errors"
	"fmt"
)

// sequence makes lists and tuples, and appends to lists.
func (m *machine) sequence(op byte) error {
	var items []value
	var err error
	switch op {
	case opEmptyList, opEmptyTuple:
		m.push(m.newObject(newObject(newList, m.start)))
		return nil
	case opTuple1, opTuple2, opTuple3:
		items, err = m.popN(int(op-opTuple1) + 1)
	case opAppend:
		items, err = m.popN(1)
	default:
		items, err = m.popMark()
	}
	if err != nil {
		return err
	}
	if op == opAppend || op == opAppends {
		return m.extend(items)
	}
	o := m.newObject(newObject(newList, m.start))
	m.fillList(int(o.number()), items) // before it takes their place on the stack
	m.push(o)
	return nil
}

// newObject enters an object.
func (m *machine) newObject(o object) value {
	m.objects = append(m.objects, o)
	m.budget.spend(8)
	return newValue(isObject, int64(len(m.objects)-1))
}

// fillList puts the first items in the new list that is an object.
func (m *machine) fillList(index int, items []value) {
	if len(items) == 0 {
		return
	}
	m.lists = append(m.lists, list{m.objects[index].number(), append(m.spare[:0], items...)})
	m.spare = nil
	m.budget.spend(32 + 8*int64(len(items)))
	m.objects[index] = newObject(aList, int64(len(m.lists)-1))
}

// extend appends to the list on top of the stack.
func (m *machine) extend(items []value) error {
	v, err := m.top()
	if err != nil {
		return err
	}
	if v.kind() != isObject {
		return errors.New("append to something that is not a list")
	}
	switch o := m.objects[v.number()]; o.form() {
	case newList:
		m.fillList(int(v.number()), items)
	case aList:
		l := &m.lists[o.number()]
		l.items = append(l.items, items...)
		m.budget.spend(8 * int64(len(items)))
	case aStack:
		return errors.New("append to a list of frames that is in use")
	default:
		return errors.New("append to something that is not a list")
	}
	return nil
}

// mapping makes dicts and sets their items.
func (m *machine) mapping(op byte) error {
	var items []value
	var err error
	switch op {
	case opEmptyDict:
		m.push(m.newObject(newObject(newDict, m.start)))
		return nil
	case opSetItem:
		items, err = m.popN(2)
		if err == nil && m.depth() == 0 {
			err = errStack
		}
	default:
		items, err = m.popMark()
	}
	if err != nil {
		return err
	}
	var v value
	if op == opDict {
		v = m.newObject(newObject(newDict, m.start))
	} else if v, err = m.top(); err != nil {
		return err
	}
	if v.kind() != isObject || len(items)%2 != 0 {
		return errors.New("set an item of something that is not a dict")
	}
	if err := m.set(int(v.number()), items); err != nil {
		return err
	}
	if op == opDict {
		m.push(v)
	}
	return nil
}

// set sets items, keys and values in turn, of the dict that is an object.
func (m *machine) set(index int, items []value) error {
	for i := 0; i < len(items); i += 2 {
		if items[i] == newValue(isText, int64(keyFrames)) {
			m.intern(items[i+1])
		}
	}
	o := m.objects[index]
	switch o.form() {
	case newDict:
		if m.compact(index, items) {
			return nil
		}
		m.dicts = append(m.dicts, dict{o.number(), texts(nil, items)})
		m.budget.spend(32 + 8*int64(len(items)))
		m.objects[index] = newObject(aDict, int64(len(m.dicts)-1))
	case aDict:
		d := &m.dicts[o.number()]
		d.items = texts(d.items, items)
		m.budget.spend(8 * int64(len(items)))
	case anEntry:
		return m.decodeEntry(&m.entries[o.number()], items)
	case aFrame:
		return errors.New("set an item of a frame that is in use")
	default:
		return errors.New("set an item of something that is not a dict")
	}
	return nil
}

// texts appends the pairs whose keys are texts.
func texts(to, items []value) []value {
	if to == nil {
		to = make([]value, 0, len(items))
	}
	for i := 0; i < len(items); i += 2 {
		if items[i].kind() == isText {
			to = append(to, items[i], items[i+1])
		}
	}
	return to
}

// maxSpare is the longest room that is kept for the next list: most stacks'.
const maxSpare = 1024

// intern makes a list whose items are all frames a stack.
func (m *machine) intern(v value) {
	if v.kind() != isObject {
		return
	}
	o := m.objects[v.number()]
	if o.form() != aList {
		return
	}
	l := &m.lists[o.number()]
	m.ids = m.ids[:0]
	for _, item := range l.items {
		if item.kind() != isObject || m.objects[item.number()].form() != aFrame {
			return
		}
		m.ids = append(m.ids, FrameID(m.objects[item.number()].number()))
	}
	before := len(m.out.stacks.ends)
	id := m.out.stacks.add(m.ids)
	if len(m.out.stacks.ends) > before {
		m.budget.spend(24 + 4*int64(len(m.ids)))
	}
	m.objects[v.number()] = newObject(aStack, int64(id))
	m.budget.spend(-8 * int64(len(l.items)))
	if cap(l.items) <= maxSpare {
		m.spare = l.items
	}
	l.items = nil
	if last := len(m.lists) - 1; int(o.number()) == last {
		m.budget.spend(-32)
		m.lists = m.lists[:last]
	}
}

// compact makes a dict a trace entry or a frame if it is one whole and valid.
func (m *machine) compact(index int, items []value) bool {
	var filename, line, name value
	for i := 0; i < len(items); i += 2 {
		switch items[i] {
		case newValue(isText, int64(keyAction)):
			e := TraceEntry{DeviceFreeBytes: -1}
			if m.decodeEntry(&e, items) != nil || m.missing(&e, items) != nil {
				return false
			}
			m.entries = append(m.entries, e)
			m.budget.spend(entryBytes)
			m.objects[index] = newObject(anEntry, int64(len(m.entries)-1))
			return true
		case newValue(isText, int64(keyFilename)):
			filename = items[i+1]
		case newValue(isText, int64(keyLine)):
			line = items[i+1]
		case newValue(isText, int64(keyName)):
			name = items[i+1]
		}
	}
	n, ok := m.integer(line)
	if !ok || filename.kind() != isText || name.kind() != isText {
		return false
	}
	before := len(m.out.stacks.frames)
	id := m.out.stacks.frame(Frame{Filename: m.string(filename), Line: int(n), Name: m.string(name)})
	if len(m.out.stacks.frames) > before {
		m.budget.spend(160)
	}
	m.objects[index] = newObject(aFrame, int64(id))
	return true
}

// integer is the value of an integer of up to 64 bits.
func (m *machine) integer(v value) (int64, bool) {
	switch v.kind() {
	case isInt:
		return v.number(), true
	case isWide:
		return m.wide[v.number()], true
	}
	return 0, false
}

// string is the value of a text, empty for others.
func (m *machine) string(v value) string {
	if v.kind() != isText {
		return ""
	}
	return m.texts.list[v.number()]
}

// dict is the items of a dict that is neither an entry nor a frame.
func (m *machine) dict(v value) (*dict, bool) {
	if v.kind() != isObject {
		return nil, false
	}
	switch o := m.objects[v.number()]; o.form() {
	case newDict:
		return &dict{offset: o.number()}, true
	case aDict:
		return &m.dicts[o.number()], true
	}
	return nil, false
}

// list is the items of a list or tuple that is no stack.
func (m *machine) list(v value) (*list, bool) {
	if v.kind() != isObject {
		return nil, false
	}
	switch o := m.objects[v.number()]; o.form() {
	case newList:
		return &list{offset: o.number()}, true
	case aList:
		return &m.lists[o.number()], true
	}
	return nil, false
}

// describe names the type of a value.
func (m *machine) describe(v value) string {
	switch v.kind() {
	case isNone:
		return "nothing"
	case isBool:
		return "a truth value"
	case isInt, isWide:
		return "an integer"
	case isHuge:
		return "an integer of more than 64 bits"
	case isFloat:
		return "a float"
	case isText:
		return "a string"
	}
	switch m.objects[v.number()].form() {
	case newList, aList:
		return "a list"
	case anEntry:
		return "a trace entry"
	case aFrame:
		return "a frame"
	case aStack:
		return "a list of frames"
	}
	return "a dict"
}

// errNot says what a value should be.
func (m *machine) errNot(key textID, v value, want string) error {
	return fmt.Errorf("%s is %s, not %s", m.texts.list[key], m.describe(v), want)
}
