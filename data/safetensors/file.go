// Package safetensors reads and writes the safetensors format: a length, a JSON
// header that names tensors, their element types, shapes and places, and then
// the tensors' data, little-endian and row-major
// (https://github.com/huggingface/safetensors).
//
// Opening a file reads its header only; each tensor is read when asked for, into
// the caller's memory. Writing streams, so files of any size need no memory of
// their size.
package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// File is an open safetensors file. Its methods can be called from several
// goroutines at once, Close excepted.
type File struct {
	path  string
	file  source
	head  *header
	index map[string]int
	base  int64 // where the data begins
}

// source is what a File reads: a file, or bytes in a test.
type source interface {
	io.ReaderAt
	io.Closer
}

// Open opens a file and checks its header completely: the JSON, every element
// type, every shape against its bytes, that the tensors cover the data without
// holes or overlaps, and that the file has exactly the bytes that they need.
// Nothing of a tensor's size is allocated.
func Open(path string) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read safetensors: %w", err)
	}
	stat, err := file.Stat()
	if err == nil && !stat.Mode().IsRegular() {
		err = errors.New("is not a regular file")
	}
	var f *File
	if err == nil {
		f, err = open(path, file, stat.Size())
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("read safetensors %s: %w", path, err)
	}
	return f, nil
}

func open(path string, file source, size int64) (*File, error) {
	head, base, err := readHeader(file, size)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, file: file, head: head, base: base, index: make(map[string]int, len(head.tensors))}
	for i, t := range head.tensors {
		f.index[t.Name] = i
	}
	return f, nil
}

// readHeader reads and checks the header of a file of size bytes and says
// where its data begins.
func readHeader(r io.ReaderAt, size int64) (h *header, base int64, err error) {
	var length [8]byte
	if size < int64(len(length)) {
		return nil, 0, fmt.Errorf("has %d bytes, too few for a safetensors file", size)
	}
	if _, err := r.ReadAt(length[:], 0); err != nil {
		return nil, 0, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	switch {
	case n > maxHeaderBytes:
		return nil, 0, fmt.Errorf("claims a header of %d bytes (at most %d), so this is no safetensors file", n, maxHeaderBytes)
	case int64(n) > size-8:
		return nil, 0, fmt.Errorf("is truncated: its header needs %d bytes, the file has %d", n+8, size)
	}
	text := make([]byte, n)
	if _, err := r.ReadAt(text, 8); err != nil {
		return nil, 0, err
	}
	if h, err = parseHeader(text); err != nil {
		return nil, 0, err
	}
	base = 8 + int64(n)
	switch have := size - base; {
	case have < h.dataBytes:
		return nil, 0, fmt.Errorf("is truncated: its tensors need %d bytes of data, the file has %d", h.dataBytes, have)
	case have > h.dataBytes:
		return nil, 0, fmt.Errorf("has %d bytes of data, but its tensors account for %d only", have, h.dataBytes)
	}
	return h, base, nil
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// Path is the path that the file was opened by.
func (f *File) Path() string { return f.path }

// Metadata is a copy of the header's free-form strings, nil without any.
func (f *File) Metadata() map[string]string { return maps.Clone(f.head.metadata) }

// Names lists the tensors in the order of their data.
func (f *File) Names() []string {
	names := make([]string, len(f.head.tensors))
	for i, t := range f.head.tensors {
		names[i] = t.Name
	}
	return names
}

// Has says whether the file holds a tensor.
func (f *File) Has(name string) bool {
	_, ok := f.index[name]
	return ok
}

// Info describes a tensor. Where there is none of that name, the error names a
// few that are there.
func (f *File) Info(name string) (Info, error) {
	t, err := f.lookup(name)
	if err != nil {
		return Info{}, err
	}
	info := *t
	info.Shape = slices.Clone(t.Shape)
	return info, nil
}

func (f *File) lookup(name string) (*Info, error) {
	i, ok := f.index[name]
	if !ok {
		return nil, fmt.Errorf("safetensors %s has no tensor %s; it has %s", f.path, quote(name), f.some(name))
	}
	return &f.head.tensors[i], nil
}

// some names a few tensors, those that share the longest beginning or end with
// name first.
func (f *File) some(name string) string {
	const few = 3
	if len(f.head.tensors) == 0 {
		return "none"
	}
	names := f.Names()
	slices.SortStableFunc(names, func(a, b string) int { return likeness(b, name) - likeness(a, name) })
	text := make([]string, min(few, len(names)))
	for i := range text {
		text[i] = quote(names[i])
	}
	list := strings.Join(text, ", ")
	if more := len(names) - len(text); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}

// likeness is the length of what two names share at their beginning and end.
func likeness(a, b string) int {
	n := min(len(a), len(b))
	head, tail := 0, 0
	for head < n && a[head] == b[head] {
		head++
	}
	for tail < n-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	return head + tail
}

// Reader reads a tensor's bytes as they stand in the file.
func (f *File) Reader(name string) (*io.SectionReader, error) {
	t, err := f.lookup(name)
	if err != nil {
		return nil, err
	}
	return io.NewSectionReader(f.file, f.base+t.offset, t.Bytes), nil
}

// Read reads a tensor's bytes as they stand in the file; len(dst) must be the
// tensor's size.
func (f *File) Read(name string, dst []byte) error {
	t, err := f.lookup(name)
	if err != nil {
		return err
	}
	if int64(len(dst)) != t.Bytes {
		return fmt.Errorf("safetensors %s: tensor %s has %d bytes, room was given for %d", f.path, quote(name), t.Bytes, len(dst))
	}
	return f.readAt(t, dst, 0)
}

// readAt fills dst from a tensor's bytes, beginning at offset.
func (f *File) readAt(t *Info, dst []byte, offset int64) error {
	n, err := f.file.ReadAt(dst, f.base+t.offset+offset)
	if n == len(dst) {
		return nil
	}
	if err == io.EOF { // the file shrank after it was opened
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("safetensors %s: read tensor %s: %w", f.path, quote(t.Name), err)
}
