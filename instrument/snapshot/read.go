package snapshot

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	maxPickleBytes = 16 << 30 // more than any snapshot that fits in memory
	freeExpansion  = 64 << 20 // gzip may expand this much without question
	maxExpansion   = 300      // and beyond by this factor; snapshots reach some 20
)

// ReadFile reads the snapshot in a file, as Read does.
func ReadFile(path string) (*Snapshot, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("read snapshot %s: it is a folder, not a file", path)
	}
	s, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("read snapshot %s: %w", path, err)
	}
	return s, nil
}

// Read reads a snapshot: a pickle of protocol 2 to 5, plain or gzipped. It
// understands plain values only and never makes or calls what a pickle names.
// Memory is in proportion to the bytes read. Errors of the pickle start with
// the offset, in the uncompressed pickle, of the byte where it went wrong.
func Read(r io.Reader) (*Snapshot, error) {
	in := bufio.NewReaderSize(r, chunk)
	var src io.Reader = in
	if magic, _ := in.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		count := &counter{Reader: in}
		z, err := gzip.NewReader(bufio.NewReader(count))
		if err != nil {
			return nil, fmt.Errorf("byte 0: bad gzip header: %w", err)
		}
		src = &expander{zip: z, in: count}
	}
	v, err := unpickle(&limited{Reader: src, left: maxPickleBytes})
	if err != nil {
		return nil, err
	}
	return convert(v)
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

// expander is a gzip stream that refuses to expand beyond reason.
type expander struct {
	zip *gzip.Reader
	in  *counter
	n   int64
}

func (e *expander) Read(p []byte) (int, error) {
	n, err := e.zip.Read(p)
	e.n += int64(n)
	if e.n > freeExpansion && e.n > e.in.n*maxExpansion {
		return n, fmt.Errorf("the gzip stream expands more than %d times", maxExpansion)
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("damaged gzip stream: %w", err)
	}
	return n, err
}

// limited fails when more than left bytes are read.
type limited struct {
	io.Reader
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return n, fmt.Errorf("the pickle is larger than %d bytes", int64(maxPickleBytes))
	}
	return n, err
}
