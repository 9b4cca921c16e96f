package snapshot

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

const (
	maxMarks = 1000 // nesting of containers under construction
	chunk    = 64 << 10
)

// A pickled value is nil, bool, int64, float64, string (also for bytes),
// *list (also for tuples) or *dict.
type (
	list struct {
		offset int64
		items  []any
	}
	dict struct {
		offset int64
		items  []item
	}
	item struct {
		key   string
		value any
	}
)

// huge stands for an integer that does not fit in 64 bits.
type huge struct{}

// machine runs a pickle. Everything it builds takes memory in proportion to
// the bytes read so far, whatever lengths the pickle announces.
type machine struct {
	in      *bufio.Reader
	offset  int64 // of the next byte
	start   int64 // of the current opcode
	stack   []any
	marks   []int
	memo    []any
	sparse  map[uint32]any // memo entries out of sequence
	scratch [8]byte
}

// unpickle reads one pickled value, which ends at a STOP opcode.
func unpickle(r io.Reader) (any, error) {
	m := &machine{in: bufio.NewReaderSize(r, chunk)}
	v, err := m.run()
	if err == nil {
		// The end of a gzip stream holds its checksum, so it must be read.
		m.start = m.offset
		if _, err = m.in.ReadByte(); errors.Is(err, io.EOF) {
			return v, nil
		} else if err == nil {
			err = errors.New("data follows the end of the pickle")
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		if m.offset == 0 {
			return nil, errors.New("byte 0: the file is empty, not a pickle")
		}
		return nil, fmt.Errorf("byte %d: the file is truncated", m.offset)
	}
	return nil, fmt.Errorf("byte %d: %w", m.start, err)
}

func (m *machine) run() (any, error) {
	op, err := m.byte()
	if err != nil {
		return nil, err
	}
	if op != opProto {
		return nil, fmt.Errorf("not a pickle of protocol 2 to 5, which starts with byte 0x80, but one of %#x", op)
	}
	for {
		if op == opStop {
			return m.pop()
		}
		if err := m.step(op); err != nil {
			return nil, err
		}
		m.start = m.offset
		if op, err = m.byte(); err != nil {
			return nil, err
		}
	}
}

func (m *machine) step(op byte) error {
	switch op {
	case opProto:
		v, err := m.byte()
		if err == nil && (v < 2 || v > 5) {
			err = fmt.Errorf("pickle protocol %d is not supported, only 2 to 5", v)
		}
		return err
	case opFrame:
		_, err := m.uint(8)
		return err
	case opMark:
		if len(m.marks) == maxMarks {
			return fmt.Errorf("nested deeper than %d", maxMarks)
		}
		m.marks = append(m.marks, len(m.stack))
		return nil
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
	case opNone:
		m.push(nil)
	case opNewTrue, opNewFalse:
		m.push(op == opNewTrue)
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
	case opMemoize, opBinPut, opLongBinPut, opBinGet, opLongBinGet:
		return m.remember(op)
	case opGlobal, opInst, opStackGlobal:
		return m.refuseGlobal(op)
	default:
		if name := refused[op]; name != "" {
			return fmt.Errorf("the pickle wants to make an object (%s), which a memory snapshot never does", name)
		}
		return fmt.Errorf("opcode %#x does not occur in a memory snapshot", op)
	}
	return nil
}

// number pushes an integer or a float.
func (m *machine) number(op byte) error {
	var size int
	switch op {
	case opBinInt1:
		size = 1
	case opBinInt2:
		size = 2
	case opBinInt:
		size = 4
	case opBinFloat:
		size = 8
	case opLong1:
		l, err := m.byte()
		if err != nil {
			return err
		}
		return m.long(int64(l))
	case opLong4:
		l, err := m.uint(4)
		if err != nil {
			return err
		}
		return m.long(int64(int32(l)))
	}
	u, err := m.uint(size)
	if err != nil {
		return err
	}
	switch op {
	case opBinInt:
		m.push(int64(int32(u)))
	case opBinFloat: // big-endian, unlike all others
		m.push(math.Float64frombits(binary.BigEndian.Uint64(m.scratch[:])))
	default:
		m.push(int64(u))
	}
	return nil
}

// long pushes a two's complement integer of n bytes.
func (m *machine) long(n int64) error {
	if n < 0 {
		return fmt.Errorf("an integer has a negative length of %d bytes", n)
	}
	s, err := m.bytes(uint64(n))
	if err != nil {
		return err
	}
	var v int64
	switch {
	case n == 0:
	case n <= 8:
		v = int64(int8(s[n-1]))
		for i := n - 2; i >= 0; i-- {
			v = v<<8 | int64(s[i])
		}
	default:
		m.push(huge{})
		return nil
	}
	m.push(v)
	return nil
}

func (m *machine) text(lengthBytes int) error {
	n, err := m.uint(lengthBytes)
	if err != nil {
		return err
	}
	s, err := m.bytes(n)
	if err != nil {
		return err
	}
	m.push(s)
	return nil
}

func (m *machine) sequence(op byte) error {
	switch op {
	case opEmptyList, opEmptyTuple:
		m.push(&list{offset: m.start})
		return nil
	case opAppend:
		v, err := m.pop()
		if err != nil {
			return err
		}
		return m.extend(v)
	}
	var items []any
	var err error
	switch op {
	case opTuple1, opTuple2, opTuple3:
		n := int(op - opTuple1 + 1)
		if m.depth() < n {
			return errStack
		}
		items = m.stack[len(m.stack)-n:]
		m.stack = m.stack[:len(m.stack)-n]
	default:
		if items, err = m.popMark(); err != nil {
			return err
		}
	}
	if op == opAppends {
		return m.extend(items...)
	}
	m.push(&list{m.start, append([]any(nil), items...)})
	return nil
}

// extend appends to the list on top of the stack.
func (m *machine) extend(items ...any) error {
	v, err := m.top()
	if err != nil {
		return err
	}
	l, ok := v.(*list)
	if !ok {
		return errors.New("append to something that is not a list")
	}
	if l.items == nil {
		l.items = make([]any, 0, len(items))
	}
	l.items = append(l.items, items...)
	return nil
}

func (m *machine) mapping(op byte) error {
	var items []any
	var err error
	switch op {
	case opEmptyDict:
		m.push(&dict{offset: m.start})
		return nil
	case opSetItem:
		if m.depth() < 3 {
			return errStack
		}
		items = m.stack[len(m.stack)-2:]
		m.stack = m.stack[:len(m.stack)-2]
	default:
		if items, err = m.popMark(); err != nil {
			return err
		}
	}
	if op == opDict {
		items = append([]any(nil), items...) // they lie where the dict goes
		m.push(&dict{offset: m.start})
	}
	v, err := m.top()
	if err != nil {
		return err
	}
	d, ok := v.(*dict)
	if !ok || len(items)%2 != 0 {
		return errors.New("set an item of something that is not a dict")
	}
	if d.items == nil {
		d.items = make([]item, 0, len(items)/2)
	}
	for i := 0; i < len(items); i += 2 {
		// Keys that are not strings cannot be ones this package looks for.
		if key, ok := items[i].(string); ok {
			d.items = append(d.items, item{key, items[i+1]})
		}
	}
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
	default:
		if m.sparse == nil {
			m.sparse = map[uint32]any{}
		}
		m.sparse[uint32(n)] = v
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
		module, _ = m.stack[len(m.stack)-2].(string)
		name, _ = m.stack[len(m.stack)-1].(string)
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

func (m *machine) push(v any) { m.stack = append(m.stack, v) }

func (m *machine) top() (any, error) {
	if m.depth() == 0 {
		return nil, errStack
	}
	return m.stack[len(m.stack)-1], nil
}

func (m *machine) pop() (any, error) {
	v, err := m.top()
	if err == nil {
		m.stack = m.stack[:len(m.stack)-1]
	}
	return v, err
}

// popMark pops the values above the last mark, and the mark. The result is
// valid until the next push.
func (m *machine) popMark() ([]any, error) {
	n := len(m.marks) - 1
	if n < 0 {
		return nil, errors.New("the pickle ends a sequence that it did not begin")
	}
	items := m.stack[m.marks[n]:]
	m.stack, m.marks = m.stack[:m.marks[n]], m.marks[:n]
	return items, nil
}

func (m *machine) byte() (byte, error) {
	b, err := m.in.ReadByte()
	if err == nil {
		m.offset++
	}
	return b, err
}

// uint reads a little-endian number of n bytes and leaves them in scratch.
func (m *machine) uint(n int) (uint64, error) {
	b, err := m.in.Peek(n)
	m.offset += int64(len(b))
	if err != nil {
		return 0, err
	}
	m.scratch = [8]byte{}
	copy(m.scratch[:], b)
	m.in.Discard(n)
	return binary.LittleEndian.Uint64(m.scratch[:]), nil
}

// bytes reads n bytes, taking memory only as they arrive.
func (m *machine) bytes(n uint64) (string, error) {
	if n <= chunk {
		b, err := m.in.Peek(int(n))
		if err != nil {
			m.offset += int64(len(b))
			return "", err
		}
		s := string(b)
		m.in.Discard(int(n))
		m.offset += int64(n)
		return s, nil
	}
	if n > math.MaxInt64 {
		return "", fmt.Errorf("a string of %d bytes", n)
	}
	var s strings.Builder
	k, err := io.CopyN(&s, m.in, int64(n))
	m.offset += k
	return s.String(), err
}

// line reads up to a newline, which is not part of the result.
func (m *machine) line() (string, error) {
	s, err := m.in.ReadSlice('\n')
	m.offset += int64(len(s))
	if errors.Is(err, bufio.ErrBufferFull) {
		return string(s[:100]), nil
	}
	return strings.TrimSuffix(string(s), "\n"), err
}
