package snapshot

import (
	"bufio"
	"encoding/binary"
	"iter"
	"math"
	"strings"
)

// maxMemo bounds the memory that the writer takes to recognise what it wrote
// before; what comes later is written in full.
const maxMemo = 1 << 18

// maxText is where the writer cuts strings off.
const maxText = 1 << 20

// pickler writes the opcodes that PyTorch's viewer reads, which has no frames
// to skip, nothing of protocol 5 and no integers beyond 8 bytes. The first error
// sticks.
type pickler struct {
	w       *bufio.Writer
	short   bool // protocol 4 and later: short strings and MEMOIZE
	err     error
	memo    uint32 // values memoized so far
	strings map[string]uint32

	snapshot *Snapshot // whose stacks and notes are written
	stacks   map[StackID]uint32
	frameIDs map[FrameID]uint32

	categories, unknown bool // whether entries had any category, and unknown
}

func (p *pickler) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// op writes an opcode and its argument.
func (p *pickler) op(b ...byte) {
	for _, c := range b { // one by one, so that b stays on the stack
		if err := p.w.WriteByte(c); err != nil {
			p.fail(err)
		}
	}
}

// dict writes a dict of at least one item, whose keys and values items writes.
func (p *pickler) dict(items func()) {
	p.op(opEmptyDict, opMark)
	items()
	p.op(opSetItems)
}

// writeList writes a list in batches, because the viewer passes the items of
// one APPENDS as arguments of a call. It stops early after an error.
func writeList[T any](p *pickler, items iter.Seq[T], write func(T)) {
	p.op(opEmptyList)
	n := 0
	for v := range items {
		if p.err != nil {
			return
		}
		if n == 0 {
			p.op(opMark)
		}
		write(v)
		if n++; n == maxAppends {
			p.op(opAppends)
			n = 0
		}
	}
	if n > 0 {
		p.op(opAppends)
	}
}

// memoize stores the value on top of the stack and returns its number, unless
// the memo is full.
func (p *pickler) memoize() (uint32, bool) {
	if p.memo == maxMemo {
		return 0, false
	}
	switch {
	case p.short:
		p.op(opMemoize)
	case p.memo <= math.MaxUint8:
		p.op(opBinPut, byte(p.memo))
	default:
		p.op(binary.LittleEndian.AppendUint32([]byte{opLongBinPut}, p.memo)...)
	}
	p.memo++
	return p.memo - 1, true
}

func (p *pickler) get(n uint32) {
	if n <= math.MaxUint8 {
		p.op(opBinGet, byte(n))
		return
	}
	p.op(binary.LittleEndian.AppendUint32([]byte{opLongBinGet}, n)...)
}

// text writes a string of up to maxText bytes, or a reference to an equal one.
func (p *pickler) text(s string) {
	if n, ok := p.strings[s]; ok {
		p.get(n)
		return
	}
	s = strings.ToValidUTF8(s[:min(len(s), maxText)], "\ufffd") // Python takes no other
	if p.short && len(s) <= math.MaxUint8 {
		p.op(opShortBinUnicode, byte(len(s)))
	} else {
		p.op(binary.LittleEndian.AppendUint32([]byte{opBinUnicode}, uint32(len(s)))...)
	}
	if _, err := p.w.WriteString(s); err != nil {
		p.fail(err)
	}
	if n, ok := p.memoize(); ok {
		p.strings[s] = n
	}
}

func (p *pickler) key(s string) { p.text(s) }

func (p *pickler) pair(key string, n int64) {
	p.key(key)
	p.int(n)
}

func (p *pickler) textPair(key, s string) {
	p.key(key)
	p.text(s)
}

func (p *pickler) bool(b bool) {
	if b {
		p.op(opNewTrue)
	} else {
		p.op(opNewFalse)
	}
}

func (p *pickler) float(f float64) {
	p.op(binary.BigEndian.AppendUint64([]byte{opBinFloat}, math.Float64bits(f))...)
}

// int writes an integer in its shortest form.
func (p *pickler) int(n int64) {
	switch {
	case n >= 0 && n <= math.MaxUint8:
		p.op(opBinInt1, byte(n))
	case n >= 0 && n <= math.MaxUint16:
		p.op(opBinInt2, byte(n), byte(n>>8))
	case n >= math.MinInt32 && n <= math.MaxInt32:
		p.op(binary.LittleEndian.AppendUint32([]byte{opBinInt}, uint32(n))...)
	default:
		b := binary.LittleEndian.AppendUint64([]byte{opLong1, 0}, uint64(n))
		size := 8
		for n>>(8*(size-1)-1) == n>>63 { // the other bytes and their sign say all
			size--
		}
		b[1] = byte(size)
		p.op(b[:2+size]...)
	}
}
