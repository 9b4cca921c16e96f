package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxHeaderBytes is the reference implementation's bound on the header.
const maxHeaderBytes = 100_000_000

// metadataKey is the header's one key that is not a tensor.
const metadataKey = "__metadata__"

// Info describes one tensor of a file.
type Info struct {
	Name  string
	DType DType
	Shape []int
	// Bytes is the size of the data.
	Bytes int64

	offset int64 // from the end of the header
}

// Elements is the number of elements; a scalar (no dimensions) has one.
func (i Info) Elements() int64 { return i.Bytes / i.DType.Size() }

// header is what a file's first bytes say.
type header struct {
	metadata  map[string]string
	tensors   []Info // by offset
	dataBytes int64
}

// tensorHeader is a tensor's entry as it stands in the JSON.
type tensorHeader struct {
	DType   string   `json:"dtype"`
	Shape   []uint64 `json:"shape"`
	Offsets []uint64 `json:"data_offsets"`
}

// parseHeader reads the JSON of a header and checks everything that can be
// known without the data: element types, shapes against offsets, and that the
// tensors cover the data without holes or overlaps.
func parseHeader(text []byte) (*header, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("header is not UTF-8 text, so this is no safetensors file")
	}
	if len(text) == 0 || text[0] != '{' {
		return nil, errors.New("header does not begin with '{', so this is no safetensors file")
	}
	h := &header{}
	seen := map[string]bool{}
	dec := json.NewDecoder(bytes.NewReader(text))
	if _, err := dec.Token(); err != nil {
		return nil, notJSON(err)
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, notJSON(err)
		}
		name := key.(string) // a key of an object is always a string
		if seen[name] {
			return nil, fmt.Errorf("header names %s twice", quote(name))
		}
		seen[name] = true
		if name == metadataKey {
			if err := dec.Decode(&h.metadata); err != nil {
				return nil, valueError(err, "header's "+metadataKey+" must map names to strings")
			}
			continue
		}
		var t tensorHeader
		if err := dec.Decode(&t); err != nil {
			return nil, valueError(err, fmt.Sprintf("tensor %s: want dtype (a string), shape and data_offsets (whole numbers from 0)", quote(name)))
		}
		info, err := t.info(name)
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", quote(name), err)
		}
		h.tensors = append(h.tensors, info)
	}
	if _, err := dec.Token(); err != nil {
		return nil, notJSON(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("header goes on after its JSON object")
	}
	return h, h.layOut()
}

// layOut sorts the tensors by offset and checks that each begins where the one
// before it ends.
func (h *header) layOut() error {
	slices.SortStableFunc(h.tensors, func(a, b Info) int {
		if a.offset != b.offset {
			if a.offset < b.offset {
				return -1
			}
			return 1
		}
		// An empty tensor stands before the one that begins where it lies.
		return int(min(max(a.Bytes-b.Bytes, -1), 1))
	})
	for _, t := range h.tensors {
		switch {
		case t.offset < h.dataBytes:
			return fmt.Errorf("tensor %s overlaps the one before it: it begins at byte %d of the data, the other ends at %d",
				quote(t.Name), t.offset, h.dataBytes)
		case t.offset > h.dataBytes:
			return fmt.Errorf("tensor %s begins at byte %d of the data and leaves a hole behind byte %d",
				quote(t.Name), t.offset, h.dataBytes)
		}
		h.dataBytes = t.offset + t.Bytes
	}
	return nil
}

// info checks one tensor's entry by itself.
func (t tensorHeader) info(name string) (Info, error) {
	size := DType(t.DType).Size()
	switch {
	case t.DType == "":
		return Info{}, errors.New("has no dtype")
	case size == 0:
		return Info{}, fmt.Errorf("unknown dtype %s (known: %s)", quote(t.DType), known())
	case t.Shape == nil:
		return Info{}, errors.New("has no shape")
	case len(t.Offsets) != 2:
		return Info{}, fmt.Errorf("data_offsets must be two numbers, not %d", len(t.Offsets))
	}
	begin, end := t.Offsets[0], t.Offsets[1]
	if begin > end || end > math.MaxInt64 {
		return Info{}, fmt.Errorf("data_offsets [%d, %d] are no range", begin, end)
	}
	shape := make([]int, len(t.Shape))
	want := uint64(size)
	for i, d := range t.Shape {
		hi, lo := bits.Mul64(want, d)
		if hi != 0 || lo > math.MaxInt64 || d > math.MaxInt {
			return Info{}, fmt.Errorf("shape %s overflows 64 bits", shapeText(t.Shape))
		}
		shape[i], want = int(d), lo
	}
	if end-begin != want {
		return Info{}, fmt.Errorf("shape %s of %s needs %d bytes, but data_offsets [%d, %d] hold %d",
			shapeText(t.Shape), t.DType, want, begin, end, end-begin)
	}
	return Info{
		Name: name, DType: DType(t.DType), Shape: shape,
		Bytes: int64(want), offset: int64(begin),
	}, nil
}

func notJSON(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("header is not JSON: %w", err)
}

// valueError tells text that is no JSON from JSON of another kind than wanted.
func valueError(err error, want string) error {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return errors.New(want)
	}
	return notJSON(err)
}

// quote is a name for an error: on one line and never longer than a line.
func quote(name string) string {
	if r := []rune(name[:min(len(name), 400)]); len(r) > 80 {
		name = string(r[:77]) + "..."
	}
	return fmt.Sprintf("%q", name)
}

// shapeText is a shape for an error, cut where it is absurdly long.
func shapeText[T int | uint64](shape []T) string {
	if len(shape) > 8 {
		return strings.TrimSuffix(fmt.Sprint(shape[:8]), "]") + fmt.Sprintf(" ... (%d dimensions)]", len(shape))
	}
	return fmt.Sprint(shape)
}
