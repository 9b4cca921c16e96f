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
	s, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("read snapshot %s: %w", path, err)
	}
	return s, nil
}

// Read reads a snapshot: a pickle of protocol 2 to 5, plain or gzipped, of
// what torch.cuda.memory._snapshot or memory_snapshot returned, in any version
// of PyTorch since 2.0. It understands plain values only and never makes or
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
	var src io.Reader = in
	if len(magic) >= 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("byte 0: bad gzip header: %w", err)
		}
		src = &expander{Reader: z, in: count}
	}
	m := newMachine(newSource(src, count, new(budget)))
	v, err := m.unpickle()
	if err != nil {
		return nil, err
	}
	return m.convert(v)
}
