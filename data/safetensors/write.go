package safetensors

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"
)

// Tensor is one tensor to write. Its bytes, little-endian and row-major, come
// from Data or, when Write is given, from Write, which is called once, when the
// tensor's turn has come, and must write exactly the tensor's size.
type Tensor struct {
	Name  string
	DType DType
	Shape []int
	Data  []byte
	Write func(w io.Writer) error
}

// Write writes a file. A file of that path is replaced, at once and only when
// the new one is complete and on disk: everything goes to a temporary file in
// the same folder first, which is removed should anything fail.
//
// Tensors are ordered as the reference writer orders them (the element type's
// size, largest first, then the name) and the header is padded to 8 bytes, so
// each tensor's data is aligned to its elements. The same tensors and metadata
// always give the same bytes, whatever their order.
func Write(path string, metadata map[string]string, tensors []Tensor) error {
	if err := write(path, metadata, tensors); err != nil {
		return fmt.Errorf("write safetensors %s: %w", path, err)
	}
	return nil
}

func write(path string, metadata map[string]string, tensors []Tensor) (err error) {
	tensors = inOrder(tensors)
	head, err := encodeHeader(metadata, tensors)
	if err != nil {
		return err
	}
	if stat, err := os.Stat(path); err == nil && !stat.Mode().IsRegular() {
		return errors.New("is there already and is not a regular file")
	}
	file, err := create(path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			file.Close()
			os.Remove(file.Name())
		}
	}()
	w := bufio.NewWriterSize(file, 1<<20)
	if err := stream(w, head, tensors); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	syncFolder(filepath.Dir(path))
	return nil
}

// inOrder sorts tensors as the reference writer does.
func inOrder(tensors []Tensor) []Tensor {
	tensors = slices.Clone(tensors)
	slices.SortStableFunc(tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(b.DType.rank(), a.DType.rank()), cmp.Compare(a.Name, b.Name))
	})
	return tensors
}

// stream writes the header and then tensor by tensor.
func stream(w io.Writer, head []byte, tensors []Tensor) error {
	if _, err := w.Write(head); err != nil {
		return err
	}
	for _, t := range tensors {
		if err := t.stream(w); err != nil {
			return fmt.Errorf("tensor %s: %w", quote(t.Name), err)
		}
	}
	return nil
}

// create makes a new file beside path with the usual permissions, which
// os.CreateTemp would not give.
func create(path string) (*os.File, error) {
	folder, name := filepath.Split(path)
	for try := 0; ; try++ {
		temporary := filepath.Join(folder, fmt.Sprintf(".%s.%08x.tmp", name, rand.Uint32()))
		file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil || !os.IsExist(err) || try == 100 {
			return file, err
		}
	}
}

// syncFolder puts a rename on disk. File systems that cannot do so for a
// folder order it themselves, so a failure is not the caller's.
func syncFolder(folder string) {
	if d, err := os.Open(folder); err == nil {
		d.Sync()
		d.Close()
	}
}

// bytes is the tensor's size.
func (t Tensor) bytes() (int64, error) {
	size := t.DType.Size()
	if size == 0 {
		return 0, fmt.Errorf("unknown dtype %s (known: %s)", quote(string(t.DType)), known())
	}
	n := uint64(size)
	for _, d := range t.Shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %s has a negative dimension", shapeText(t.Shape))
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > math.MaxInt64 {
			return 0, fmt.Errorf("shape %s overflows 64 bits", shapeText(t.Shape))
		}
		n = lo
	}
	if t.Write == nil && uint64(len(t.Data)) != n {
		return 0, fmt.Errorf("shape %s of %s needs %d bytes, its data has %d", shapeText(t.Shape), t.DType, n, len(t.Data))
	}
	return int64(n), nil
}

// stream writes the tensor's bytes and holds Write to the size it owes.
func (t Tensor) stream(w io.Writer) error {
	if t.Write == nil {
		_, err := w.Write(t.Data)
		return err
	}
	want, err := t.bytes()
	if err != nil {
		return err
	}
	bounded := &boundedWriter{w: w, left: want}
	if err := t.Write(bounded); err != nil {
		return err
	}
	switch {
	case bounded.over:
		return fmt.Errorf("more than its %d bytes were written", want)
	case bounded.left > 0:
		return fmt.Errorf("%d of its %d bytes were written", want-bounded.left, want)
	}
	return nil
}

// boundedWriter refuses what goes beyond a tensor's size, so that a faulty
// source fails before it fills the disk.
type boundedWriter struct {
	w    io.Writer
	left int64
	over bool
}

func (b *boundedWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		b.over = true
		return 0, errors.New("more bytes than the tensor's shape needs")
	}
	n, err := b.w.Write(p)
	b.left -= int64(n)
	return n, err
}

// encodeHeader is the length and the JSON of the header for tensors in order.
func encodeHeader(metadata map[string]string, tensors []Tensor) ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, 8))
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	value := func(v any) error {
		if err := enc.Encode(v); err != nil {
			return err
		}
		b.Truncate(b.Len() - 1) // the encoder's newline
		return nil
	}
	b.WriteByte('{')
	if len(metadata) > 0 {
		for k, v := range metadata {
			if !utf8.ValidString(k) || !utf8.ValidString(v) {
				return nil, fmt.Errorf("metadata %s is not UTF-8", quote(k))
			}
		}
		b.WriteString(`"` + metadataKey + `":`)
		if err := value(metadata); err != nil { // keys sorted
			return nil, err
		}
	}
	seen := make(map[string]bool, len(tensors))
	end := int64(0)
	for _, t := range tensors {
		switch {
		case t.Name == "" || t.Name == metadataKey || !utf8.ValidString(t.Name):
			return nil, fmt.Errorf("a tensor cannot be named %s", quote(t.Name))
		case seen[t.Name]:
			return nil, fmt.Errorf("tensor %s is there twice", quote(t.Name))
		}
		seen[t.Name] = true
		n, err := t.bytes()
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", quote(t.Name), err)
		}
		begin := end
		if end += n; end < begin {
			return nil, errors.New("the tensors' sizes overflow 64 bits")
		}
		if b.Len() > len("{")+8 {
			b.WriteByte(',')
		}
		if err := value(t.Name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		entry := tensorHeader{DType: string(t.DType), Shape: make([]uint64, len(t.Shape)), Offsets: []uint64{uint64(begin), uint64(end)}}
		for i, d := range t.Shape {
			entry.Shape[i] = uint64(d)
		}
		if err := value(entry); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	head := b.Bytes()
	if n := len(head) - 8; n > maxHeaderBytes {
		return nil, fmt.Errorf("the header would have %d bytes, at most %d are allowed", n, maxHeaderBytes)
	}
	binary.LittleEndian.PutUint64(head, uint64(len(head)-8))
	return head, nil
}
