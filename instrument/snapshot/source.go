package snapshot

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	chunk          = 256 << 10
	maxPickleBytes = 16 << 30 // more than any snapshot that fits in memory
	freeExpansion  = 64 << 20 // a compressed file may expand this much without question
	maxExpansion   = 300      // and beyond by this factor; snapshots reach some 40
)

// source is a pickle's bytes, read in chunks.
type source struct {
	r      io.Reader
	buf    []byte // read and not yet taken from pos on
	pos    int
	base   int64    // offset in the pickle of buf[0]
	file   *counter // bytes of the file
	budget *budget
	err    error
}

func newSource(r io.Reader, file *counter, b *budget) *source {
	s := &source{r: r, file: file, budget: b, buf: make([]byte, 0, chunk)}
	b.read(0, 0)
	return s
}

// offset is the place of the next byte in the pickle.
func (s *source) offset() int64 { return s.base + int64(s.pos) }

// need returns the next n bytes, at most chunk, without taking them. If there
// are fewer it returns those, and why.
func (s *source) need(n int) ([]byte, error) {
	if len(s.buf)-s.pos >= n {
		return s.buf[s.pos : s.pos+n], nil
	}
	return s.fill(n)
}

func (s *source) fill(n int) ([]byte, error) {
	s.base += int64(s.pos)
	s.buf = s.buf[:copy(s.buf, s.buf[s.pos:])]
	s.pos = 0
	for len(s.buf) < n && s.err == nil {
		var k int
		k, s.err = s.r.Read(s.buf[len(s.buf):cap(s.buf)])
		s.buf = s.buf[:len(s.buf)+k]
		if s.base+int64(len(s.buf)) > maxPickleBytes && s.err == nil {
			s.err = fmt.Errorf("the pickle is larger than %d bytes", int64(maxPickleBytes))
		}
		s.budget.read(s.base+int64(len(s.buf)), s.file.n)
	}
	if len(s.buf) < n {
		return s.buf, s.err
	}
	return s.buf[:n], nil
}

func (s *source) byte() (byte, error) {
	if s.pos < len(s.buf) {
		b := s.buf[s.pos]
		s.pos++
		return b, nil
	}
	b, err := s.fill(1)
	if err != nil {
		return 0, err
	}
	s.pos++
	return b[0], nil
}

// uint reads a little-endian number of up to 8 bytes.
func (s *source) uint(n int) (uint64, error) {
	b, err := s.need(n)
	s.pos += len(b)
	if err != nil {
		return 0, err
	}
	var v uint64
	for i := n - 1; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	return v, nil
}

// bytes reads n bytes, taking memory only as they arrive. The result is valid
// until the next read.
func (s *source) bytes(n uint64) ([]byte, error) {
	if n <= chunk {
		b, err := s.need(int(n))
		s.pos += len(b)
		return b, err
	}
	var all []byte
	for uint64(len(all)) < n {
		b, err := s.need(int(min(n-uint64(len(all)), chunk)))
		s.pos += len(b)
		if err != nil {
			return nil, err
		}
		all = append(all, b...)
		s.budget.spend(int64(len(b)))
		if err := s.budget.err(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// line reads up to a newline, which is not part of the result, or the first
// hundred bytes of a longer line.
func (s *source) line() (string, error) {
	var l strings.Builder
	for l.Len() < 100 {
		b, err := s.byte()
		if err != nil {
			return l.String(), err
		}
		if b == '\n' {
			break
		}
		l.WriteByte(b)
	}
	return l.String(), nil
}

// counter counts the bytes that pass.
type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// expander is a decompressed stream that refuses to expand beyond reason.
type expander struct {
	io.Reader
	in *counter
	n  int64
}

func (e *expander) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	e.n += int64(n)
	if e.n > freeExpansion && e.n > e.in.n*maxExpansion {
		return n, fmt.Errorf("the file expands more than %d times", maxExpansion)
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("damaged compressed data: %w", err)
	}
	return n, err
}
