package snapshot

import (
	"errors"
	"fmt"
	"io"
	"math"
)

const maxMarks = 1000 // nesting of containers under construction

// machine runs a pickle. What repeats it keeps once: texts, frames, stacks;
// and dicts that are trace entries become TraceEntry as soon as they are set,
// so that a long history is never in memory as dicts.
type machine struct {
	*source
	start  int64 // offset of the current opcode
	stack  []value
	marks  []int
	memo   []value
	sparse map[uint32]value // memo entries out of sequence

	texts   *textTable
	wide    []int64
	floats  []float64
	objects []object
	lists   []list
	dicts   []dict
	spare   []value // room for the items of the next list

	out     *Snapshot // its stacks and notes
	entries []TraceEntry
	ids     []FrameID // scratch
	note    noteKey   // of the last entry, and its id
	noteID  NoteID
}

func newMachine(in *source) *machine {
	return &machine{source: in, texts: newTextTable(in.budget), out: new(Snapshot)}
}

// unpickle reads one pickled value, which ends at a STOP opcode.
func (m *machine) unpickle() (value, error) {
	v, err := m.run()
	if err == nil {
		// The end of a gzip stream holds its checksum, so it must be read.
		m.start = m.offset()
		if _, err = m.byte(); errors.Is(err, io.EOF) {
			return v, nil
		} else if err == nil {
			err = errors.New("data follows the end of the pickle")
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		if m.offset() == 0 {
			return v, errors.New("byte 0: the file is empty, not a pickle")
		}
		return v, fmt.Errorf("byte %d: the file is truncated", m.offset())
	}
	return v, fmt.Errorf("byte %d: %w", m.start, err)
}

func (m *machine) run() (value, error) {
	op, err := m.byte()
	if err != nil {
		return 0, err
	}
	if op != opProto {
		return 0, fmt.Errorf("not a pickle of protocol 2 to 5, which starts with byte 0x80, but one of %#x", op)
	}
	for {
		if op == opStop {
			return m.pop()
		}
		if err := m.step(op); err != nil {
			return 0, err
		}
		if m.budget.built > m.budget.allowed {
			return 0, m.budget.err()
		}
		m.start = m.offset()
		if op, err = m.byte(); err != nil {
			return 0, err
		}
	}
}

func (m *machine) step(op byte) error {
	switch op {
	case opMemoize, opBinPut, opLongBinPut, opBinGet, opLongBinGet:
		return m.remember(op)
	case opBinInt, opBinInt1, opBinInt2, opLong1, opLong4, opBinFloat:
		return m.number(op)
	case opShortBinUnicode, opShortBinString, opShortBinBytes:
		return m.text(1)
	case opBinUnicode, opBinString, opBinBytes:
		return m.text(4)
	case opBinUnicode8, opBinBytes8, opByteArray8:
		return m.text(8)
	case opEmptyList, opEmptyTuple, opList, opTuple, opTuple1, opTuple2, opTuple3, opAppend, opAppends:
		return m.sequence(op)
	case opEmptyDict, opDict, opSetItem, opSetItems:
		return m.mapping(op)
	case opMark:
		if len(m.marks) == maxMarks {
			return fmt.Errorf("nested deeper than %d", maxMarks)
		}
		m.marks = append(m.marks, len(m.stack))
	case opNone:
		m.push(newValue(isNone, 0))
	case opNewTrue, opNewFalse:
		m.push(newValue(isBool, int64(opNewFalse-op)&1))
	case opProto:
		v, err := m.byte()
		if err == nil && (v < 2 || v > 5) {
			err = fmt.Errorf("pickle protocol %d is not supported, only 2 to 5", v)
		}
		return err
	case opFrame:
		_, err := m.uint(8)
		return err
	default:
		return m.rare(op)
	}
	return nil
}

// rare runs the opcodes that snapshots hardly have, and refuses those that
// they never have.
func (m *machine) rare(op byte) error {
	switch op {
	case opPop:
		_, err := m.pop()
		return err
	case opPopMark:
		_, err := m.popMark()
		return err
	case opDup:
		v, err := m.top()
		m.push(v)
		return err
	case opGlobal, opInst, opStackGlobal:
		return m.refuseGlobal(op)
	}
	if name := refused[op]; name != "" {
		return fmt.Errorf("the pickle wants to make an object (%s), which a memory snapshot never does", name)
	}
	return fmt.Errorf("opcode %#x does not occur in a memory snapshot", op)
}

// number pushes an integer or a float.
func (m *machine) number(op byte) error {
	var size int
	switch op {
	case opBinInt1:
		size = 1
	case opBinInt2:
		size = 2
	case opBinInt, opLong4:
		size = 4
	case opBinFloat:
		b, err := m.bytes(8)
		if err != nil {
			return err
		}
		var bits uint64
		for _, c := range b { // big-endian, unlike all others
			bits = bits<<8 | uint64(c)
		}
		m.floats = append(m.floats, math.Float64frombits(bits))
		m.budget.spend(8)
		m.push(newValue(isFloat, int64(len(m.floats)-1)))
		return nil
	case opLong1:
		size = 1
	}
	u, err := m.uint(size)
	if err != nil {
		return err
	}
	switch op {
	case opLong1:
		return m.long(int64(u))
	case opLong4:
		return m.long(int64(int32(u)))
	case opBinInt:
		u = uint64(int32(u))
	}
	m.push(newValue(isInt, int64(u)))
	return nil
}

// long pushes a two's complement integer of n bytes.
func (m *machine) long(n int64) error {
	if n < 0 {
		return fmt.Errorf("an integer has a negative length of %d bytes", n)
	}
	b, err := m.bytes(uint64(n))
	if err != nil {
		return err
	}
	if n > 8 {
		m.push(newValue(isHuge, 0))
		return nil
	}
	var v int64
	if n > 0 {
		v = int64(int8(b[n-1]))
		for i := n - 2; i >= 0; i-- {
			v = v<<8 | int64(b[i])
		}
	}
	if v<<kindBits>>kindBits == v {
		m.push(newValue(isInt, v))
		return nil
	}
	m.wide = append(m.wide, v)
	m.budget.spend(8)
	m.push(newValue(isWide, int64(len(m.wide)-1)))
	return nil
}

func (m *machine) text(lengthBytes int) error {
	n, err := m.uint(lengthBytes)
	if err != nil {
		return err
	}
	if n > math.MaxInt64 {
		return fmt.Errorf("a string of %d bytes", n)
	}
	b, err := m.bytes(n)
	if err != nil {
		return err
	}
	m.push(newValue(isText, int64(m.texts.id(b))))
	return nil
}

// remember stores the top of the stack in the memo, or pushes from the memo.
func (m *machine) remember(op byte) error {
	var n uint64
	var err error
	switch op {
	case opMemoize:
		n = uint64(len(m.memo) + len(m.sparse))
	case opBinPut, opBinGet:
		n, err = m.uint(1)
	default:
		n, err = m.uint(4)
	}
	if err != nil {
		return err
	}
	if op == opBinGet || op == opLongBinGet {
		if n < uint64(len(m.memo)) {
			m.push(m.memo[n])
			return nil
		}
		v, ok := m.sparse[uint32(n)]
		if !ok {
			return fmt.Errorf("the pickle refers to its value number %d, which it never stored", n)
		}
		m.push(v)
		return nil
	}
	v, err := m.top()
	switch {
	case err != nil:
		return err
	case n < uint64(len(m.memo)):
		m.memo[n] = v
	case n == uint64(len(m.memo)):
		m.memo = append(m.memo, v)
		m.budget.spend(8)
	default:
		if m.sparse == nil {
			m.sparse = map[uint32]value{}
		}
		m.sparse[uint32(n)] = v
		m.budget.spend(40)
	}
	return nil
}

// refuseGlobal is the error for a pickle that names a class or function.
func (m *machine) refuseGlobal(op byte) error {
	var module, name string
	if op == opStackGlobal {
		if m.depth() < 2 {
			return errStack
		}
		module = m.string(m.stack[len(m.stack)-2])
		name = m.string(m.stack[len(m.stack)-1])
	} else {
		var err error
		if module, err = m.line(); err == nil {
			name, err = m.line()
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("the pickle wants to call %.100q, which a memory snapshot never does; nothing was called", module+"."+name)
}

var errStack = errors.New("the pickle takes a value that it did not push")

// depth is how many values lie above the last mark.
func (m *machine) depth() int {
	if n := len(m.marks); n > 0 {
		return len(m.stack) - m.marks[n-1]
	}
	return len(m.stack)
}

func (m *machine) push(v value) {
	if len(m.stack) == cap(m.stack) {
		m.budget.spend(8 * int64(max(len(m.stack), 64)))
	}
	m.stack = append(m.stack, v)
}

func (m *machine) top() (value, error) {
	if m.depth() == 0 {
		return 0, errStack
	}
	return m.stack[len(m.stack)-1], nil
}

func (m *machine) pop() (value, error) {
	v, err := m.top()
	if err == nil {
		m.stack = m.stack[:len(m.stack)-1]
	}
	return v, err
}

// popMark pops the values above the last mark, and the mark. The result is
// valid until the next push.
func (m *machine) popMark() ([]value, error) {
	n := len(m.marks) - 1
	if n < 0 {
		return nil, errors.New("the pickle ends a sequence that it did not begin")
	}
	items := m.stack[m.marks[n]:]
	m.stack, m.marks = m.stack[:m.marks[n]], m.marks[:n]
	return items, nil
}

// popN pops n values, valid until the next push.
func (m *machine) popN(n int) ([]value, error) {
	if m.depth() < n {
		return nil, errStack
	}
	items := m.stack[len(m.stack)-n:]
	m.stack = m.stack[:len(m.stack)-n]
	return items, nil
}
