package snapshot

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
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
	s, err := readFile(f)
	if err != nil {
		return nil, fmt.Errorf("read snapshot %s: %w", path, err)
	}
	return s, nil
}

// readFile reads a file that can be a zip archive, which is not read in order.
func readFile(f *os.File) (*Snapshot, error) {
	var magic [4]byte
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() {
		if n, _ := f.ReadAt(magic[:], 0); n == len(magic) && string(magic[:]) == zipMagic {
			return readZip(f, info.Size())
		}
	}
	return Read(f)
}

const zipMagic = "PK\x03\x04"

// Read reads a snapshot: a pickle of protocol 2 to 5, plain or gzipped, of
// what torch.cuda.memory._snapshot or memory_snapshot returned, in any version
// of PyTorch since 2.0. ReadFile also reads what torch.save made of it. It understands plain values only and never makes or
// calls what a pickle names. Memory is in proportion to the bytes read. Errors
// of the pickle start with the offset, in the uncompressed pickle, of the byte
// where it went wrong.
func Read(r io.Reader) (*Snapshot, error) {
	count := &counter{Reader: r}
	in := bufio.NewReader(count)
	magic, err := in.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if string(magic) == zipMagic {
		return nil, errors.New("byte 0: a zip archive, which can be read from a file only")
	}
	var src io.Reader = in
	if len(magic) >= 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("byte 0: bad gzip header: %w", err)
		}
		src = &expander{Reader: z, in: count}
	}
	return readPickle(src, count)
}

// readPickle reads a pickle out of a file of which count tells how much was
// read.
func readPickle(src io.Reader, count *counter) (*Snapshot, error) {
	b := new(budget)
	b.limit, b.limitName = forReading()
	m := newMachine(newSource(src, count, b))
	v, err := m.unpickle()
	if err != nil {
		return nil, err
	}
	return m.convert(v)
}
