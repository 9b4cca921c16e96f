package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
)

// reference was written by the reference implementation (Python's
// safetensors 0.8.0) and holds every element type but the 8-bit floats and
// complex numbers.
const reference = "testdata/reference.safetensors"

func mustOpen(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestReadReference(t *testing.T) {
	f := mustOpen(t, reference)
	if m := f.Metadata(); m["format"] != "pt" || m["note"] != "a < b & \"é\"\n" || len(m) != 2 {
		t.Errorf("metadata %q", m)
	}
	if n := f.Names(); len(n) != 16 || n[0] != "u64" || n[len(n)-1] != "mask" {
		t.Errorf("names %q", n)
	}
	info, err := f.Info("block.0.w")
	if err != nil || info.DType != F64 || !slices.Equal(info.Shape, []int{2, 2, 3}) || info.Bytes != 96 || info.Elements() != 12 {
		t.Errorf("block.0.w is %+v, %v", info, err)
	}
	floats := map[string][]float64{
		"half":   {0, math.Copysign(0, -1), 1, -2.5, 65504, 0x1p-24, 0x1.a38p-14, math.Inf(1), math.Inf(-1), math.NaN()},
		"brain":  {0, 1, -3.140625, 0x1.94p+99, math.Inf(1)},
		"scalar": {2.5},
		"empty":  {},
		"i32":    {math.MinInt32, math.MaxInt32},
		"mask":   {1, 0},
	}
	for name, want := range floats {
		got, err := f.ReadFloat64s(name)
		same := slices.EqualFunc(got, want, func(a, b float64) bool {
			return math.Float64bits(a) == math.Float64bits(b) || a != a && b != b
		})
		if err != nil || !same {
			t.Errorf("%s as float64: %v, %v; want %v", name, got, err, want)
		}
	}
	ints := map[string][]int64{
		"ids": {1, -100, 9007199254740993}, "i32": {math.MinInt32, math.MaxInt32},
		"bytes": {0, 1, 2, 3, 4, 5, 6}, "i8": {-128, 127}, "i16": {-5, 300}, "u16": {65535}, "u32": {math.MaxUint32}, "mask": {1, 0},
	}
	for name, want := range ints {
		if got, err := f.ReadInt64s(name); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s as int64: %v, %v; want %v", name, got, err, want)
		}
	}
	if got, err := f.ReadInt32s("i16"); err != nil || !slices.Equal(got, []int32{-5, 300}) {
		t.Errorf("i16 as int32: %v, %v", got, err)
	}
}

// The same tensors written by this package, in any order, are the reference
// writer's file byte for byte.
func TestWriteEqualsReference(t *testing.T) {
	f := mustOpen(t, reference)
	var tensors []Tensor
	for i, name := range f.Names() {
		info, err := f.Info(name)
		if err != nil {
			t.Fatal(err)
		}
		out := Tensor{Name: name, DType: info.DType, Shape: info.Shape}
		if i%2 == 0 {
			out.Data = make([]byte, info.Bytes)
			if err := f.Read(name, out.Data); err != nil {
				t.Fatal(err)
			}
		} else {
			out.Write = func(w io.Writer) error {
				r, err := f.Reader(name)
				if err != nil {
					return err
				}
				_, err = io.Copy(w, r)
				return err
			}
		}
		tensors = append(tensors, out)
	}
	slices.Reverse(tensors)
	path := filepath.Join(t.TempDir(), "copy.safetensors")
	if err := os.WriteFile(path, []byte("what was there before"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, f.Metadata(), tensors); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("wrote %d bytes that differ from the reference's %d:\n%.400q\n%.400q", len(got), len(want), got, want)
	}
}

func TestReadAs(t *testing.T) {
	f := mustOpen(t, reference)
	for _, c := range []struct {
		name  string
		dtype device.DType
		want  []byte
	}{
		{"brain", device.Float32, le(float32(0), float32(1), float32(-3.140625), math.Float32frombits(0x714a0000), float32(math.Inf(1)))},
		{"scalar", device.BFloat16, le(uint16(0x4020))},
		{"scalar", device.Float32, le(float32(2.5))},
		{"i16", device.Float64, le(-5.0, 300.0)},
		{"i16", device.Int32, le(int32(-5), int32(300))},
		{"u16", device.Int64, le(int64(65535))},
		{"mask", device.Uint8, []byte{1, 0}},
		{"bytes", device.Uint8, []byte{0, 1, 2, 3, 4, 5, 6}},
	} {
		dst := make([]byte, len(c.want))
		if err := f.ReadAs(c.name, c.dtype, dst); err != nil || !bytes.Equal(dst, c.want) {
			t.Errorf("%s as %v: %x, %v; want %x", c.name, c.dtype, dst, err, c.want)
		}
	}
	for _, c := range []struct {
		name  string
		dtype device.DType
		size  int
		want  string
	}{
		{"u64", device.Int64, 16, `element 0 of tensor "u64" does not fit int64`},
		{"ids", device.Int32, 12, `element 2 of tensor "ids" does not fit int32`},
		{"i8", device.Uint8, 2, `element 0 of tensor "i8" does not fit uint8`},
		{"scalar", device.Int32, 4, `tensor "scalar" is F64, want whole numbers`},
		{"scalar", device.Float32, 8, "has 4 bytes as float32, room was given for 8"},
	} {
		wantError(t, f.ReadAs(c.name, c.dtype, make([]byte, c.size)), c.want)
	}
	wantError(t, f.Read("scalar", make([]byte, 4)), `tensor "scalar" has 8 bytes, room was given for 4`)
}

// Conversions go through a buffer: a tensor longer than it must arrive whole.
func TestLongTensor(t *testing.T) {
	const n = 3*chunkElements + 17
	data := make([]byte, 0, 4*n)
	for i := range n {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i)))
	}
	path := filepath.Join(t.TempDir(), "long.safetensors")
	if err := Write(path, nil, []Tensor{{Name: "x", DType: F32, Shape: []int{n}, Data: data}}); err != nil {
		t.Fatal(err)
	}
	got, err := mustOpen(t, path).ReadFloat64s("x")
	if err != nil || len(got) != n {
		t.Fatalf("%d elements, %v", len(got), err)
	}
	for i, v := range got {
		if v != float64(i) {
			t.Fatalf("element %d is %v", i, v)
		}
	}
}

func TestMissingTensor(t *testing.T) {
	f := mustOpen(t, reference)
	_, err := f.Info("block.1.w")
	wantError(t, err, `has no tensor "block.1.w"; it has "block.0.w", `)
	wantError(t, err, " and 13 more")
	wantError(t, f.Read("nothing", nil), "has no tensor")
	if f.Has("nothing") || !f.Has("ids") {
		t.Error("Has is wrong")
	}
}

func TestOpenErrors(t *testing.T) {
	whole, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("n", 1<<20)
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"empty":          {nil, "has 0 bytes, too few"},
		"short header":   {whole[:100], "is truncated: its header needs"},
		"short data":     {whole[:len(whole)-1], "of data, the file has"},
		"long data":      {append(bytes.Clone(whole), 0), "but its tensors account for"},
		"absurd length":  {le(uint64(1) << 60), "claims a header of 1152921504606846976 bytes"},
		"zip":            {[]byte("PK\x03\x04\x14\x00\x00\x00aaaaaaaaaaaaa"), "no safetensors file"},
		"not an object":  {file(`[1]     `), "does not begin with '{'"},
		"not UTF-8":      {file("{\xff}"), "not UTF-8"},
		"not JSON":       {file(`{"a" 1}`), "not JSON"},
		"cut JSON":       {file(`{"a":{"dtype":"F32"`), "not JSON"},
		"two objects":    {file(`{} {}`), "goes on after"},
		"tensor a list":  {file(`{"a":[1]}`), `tensor "a": want dtype`},
		"no dtype":       {file(`{"a":{"shape":[],"data_offsets":[0,0]}}`), "has no dtype"},
		"unknown dtype":  {file(`{"a":{"dtype":"F4","shape":[],"data_offsets":[0,0]}}`), `unknown dtype "F4" (known: BOOL, U8,`},
		"no shape":       {file(`{"a":{"dtype":"F32","data_offsets":[0,4]}}`), "has no shape"},
		"negative":       {file(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`), "whole numbers from 0"},
		"fraction":       {file(`{"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}}`), "whole numbers from 0"},
		"one offset":     {file(`{"a":{"dtype":"F32","shape":[],"data_offsets":[4]}}`), "must be two numbers, not 1"},
		"backwards":      {file(`{"a":{"dtype":"F32","shape":[],"data_offsets":[4,0]}}`), "are no range"},
		"huge offset":    {file(`{"a":{"dtype":"F32","shape":[],"data_offsets":[0,18446744073709551615]}}`), "are no range"},
		"size mismatch":  {file(`{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,4]}}`), "shape [2 3] of F32 needs 24 bytes, but data_offsets [0, 4] hold 4"},
		"overflow":       {file(`{"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,0]}}`), "overflows 64 bits"},
		"twice":          {file(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`), `names "a" twice`},
		"overlap":        {file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}}`, 0, 0, 0, 0, 0, 0, 0), `"b" overlaps`},
		"hole":           {file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}}`, 0, 0, 0, 0, 0), "leaves a hole behind byte 2"},
		"promises":       {file(`{"a":{"dtype":"U8","shape":[1099511627776],"data_offsets":[0,1099511627776]}}`, 1), "its tensors need 1099511627776 bytes of data, the file has 1"},
		"metadata":       {file(`{"__metadata__":{"a":1}}`), "must map names to strings"},
		"metadata twice": {file(`{"__metadata__":{},"__metadata__":{}}`), "twice"},
		"long name":      {file(`{"` + long + `":{"dtype":"X","shape":[],"data_offsets":[0,0]}}`), "nnn..."},
		"long dtype":     {file(`{"a\nb":{"dtype":"` + long + `","shape":[],"data_offsets":[0,0]}}`), `tensor "a\nb": unknown dtype`},
		"long shape":     {file(`{"a":{"dtype":"F32","shape":[0` + strings.Repeat(",1", 1<<16) + `],"data_offsets":[0,4]}}`), "(65537 dimensions)]"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.safetensors")
			if err := os.WriteFile(path, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := Open(path)
			if err == nil {
				f.Close()
			}
			wantError(t, err, c.want)
			wantError(t, err, path)
		})
	}
	_, err = Open(filepath.Join(t.TempDir(), "missing"))
	wantError(t, err, "no such file")
	_, err = Open(t.TempDir())
	wantError(t, err, "is not a regular file")
}

// A write that fails leaves the old file as it was and nothing beside it.
func TestWriteErrors(t *testing.T) {
	fill := func(n int, err error) func(io.Writer) error {
		return func(w io.Writer) error {
			if _, werr := w.Write(make([]byte, n)); werr != nil {
				return werr
			}
			return err
		}
	}
	u8 := func(name string) Tensor { return Tensor{Name: name, DType: U8, Shape: []int{4}, Data: make([]byte, 4)} }
	for name, c := range map[string]struct {
		tensors []Tensor
		want    string
	}{
		"twice":      {[]Tensor{u8("a"), u8("a")}, `tensor "a" is there twice`},
		"no name":    {[]Tensor{u8("")}, `cannot be named ""`},
		"reserved":   {[]Tensor{u8("__metadata__")}, "cannot be named"},
		"not UTF-8":  {[]Tensor{u8("\xff")}, "cannot be named"},
		"no dtype":   {[]Tensor{{Name: "a"}}, "unknown dtype"},
		"negative":   {[]Tensor{{Name: "a", DType: F32, Shape: []int{2, -1}}}, "negative dimension"},
		"overflow":   {[]Tensor{{Name: "a", DType: F32, Shape: []int{math.MaxInt, 2}}}, "overflows"},
		"all over":   {[]Tensor{{Name: "a", DType: U8, Shape: []int{math.MaxInt}, Write: fill(0, nil)}, u8("b")}, "overflow 64 bits"},
		"short data": {[]Tensor{{Name: "a", DType: F32, Shape: []int{2}, Data: make([]byte, 4)}}, "needs 8 bytes, its data has 4"},
		"too few":    {[]Tensor{u8("b"), {Name: "a", DType: F32, Shape: []int{2}, Write: fill(4, nil)}}, "4 of its 8 bytes"},
		"too many":   {[]Tensor{{Name: "a", DType: F32, Shape: []int{2}, Write: fill(9, nil)}}, "more bytes than"},
		"source":     {[]Tensor{{Name: "a", DType: F32, Shape: []int{2}, Write: fill(8, errors.New("device is gone"))}}, "device is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			path := filepath.Join(folder, "x.safetensors")
			if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			err := Write(path, nil, c.tensors)
			wantError(t, err, c.want)
			wantError(t, err, path)
			if old, err := os.ReadFile(path); err != nil || string(old) != "old" {
				t.Errorf("the old file holds %q, %v", old, err)
			}
			if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
				t.Errorf("the folder holds %v, %v", entries, err)
			}
		})
	}
	wantError(t, Write(t.TempDir(), nil, nil), "not a regular file")
	wantError(t, Write(filepath.Join(t.TempDir(), "no", "x"), nil, nil), "no such file")
	wantError(t, Write(filepath.Join(t.TempDir(), "x"), map[string]string{"a": "\xff"}, nil), "not UTF-8")
}

func TestDeviceTypes(t *testing.T) {
	for d := device.Float32; d <= device.Uint8; d++ {
		if back, ok := Of(d).Device(); !ok || back != d || Of(d).Size() != d.Size() {
			t.Errorf("%v is %q and comes back as %v, %v", d, Of(d), back, ok)
		}
	}
	if d, ok := F16.Device(); ok {
		t.Errorf("F16 became %v", d)
	}
}

// FuzzOpen holds that no file panics, that every tensor of a file that opens
// can be read, and that writing it again gives a file that reads the same.
func FuzzOpen(f *testing.F) {
	whole, err := os.ReadFile(reference)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"F32","shape":[0],"data_offsets":[2,2]}}`, 1, 2))
	f.Fuzz(func(t *testing.T, content []byte) {
		in, err := open("in", memory{bytes.NewReader(content)}, int64(len(content)))
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("error of several lines: %q", err)
			}
			return
		}
		var tensors []Tensor
		for _, name := range in.Names() {
			info, err := in.Info(name)
			if err != nil {
				t.Fatal(err)
			}
			data := make([]byte, info.Bytes)
			if err := in.Read(name, data); err != nil {
				t.Fatal(err)
			}
			if _, err := in.ReadFloat32s(name); err != nil && !strings.Contains(err.Error(), "does not") {
				t.Fatal(err)
			}
			tensors = append(tensors, Tensor{Name: name, DType: info.DType, Shape: info.Shape, Data: data})
		}
		tensors = inOrder(tensors)
		head, err := encodeHeader(in.Metadata(), tensors)
		if err != nil {
			if in.Has("") { // which may be read, not written
				return
			}
			t.Fatal(err)
		}
		var again bytes.Buffer
		if err := stream(&again, head, tensors); err != nil {
			t.Fatal(err)
		}
		out, err := open("out", memory{bytes.NewReader(again.Bytes())}, int64(again.Len()))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range tensors {
			info, err := out.Info(want.Name)
			if err != nil || info.DType != want.DType || !slices.Equal(info.Shape, want.Shape) {
				t.Fatalf("%q came back as %+v, %v", want.Name, info, err)
			}
			data := make([]byte, info.Bytes)
			if err := out.Read(want.Name, data); err != nil || !bytes.Equal(data, want.Data) {
				t.Fatalf("%q came back with other data, %v", want.Name, err)
			}
		}
	})
}

// memory is a file in memory.
type memory struct{ *bytes.Reader }

func (memory) Close() error { return nil }

// file is a header and data with the header's length before them.
func file(head string, data ...byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	return append(append(b, head...), data...)
}

// le is values in little-endian bytes.
func le(values ...any) []byte {
	var b bytes.Buffer
	for _, v := range values {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q in it", err, want)
	} else if text := err.Error(); strings.Contains(text, "\n") || len(text) > 1000 {
		t.Errorf("error is not one line: %.200q", text)
	}
}

func BenchmarkReadAs(b *testing.B) {
	const n = 1 << 22
	path := filepath.Join(b.TempDir(), "x.safetensors")
	if err := Write(path, nil, []Tensor{{Name: "x", DType: BF16, Shape: []int{n}, Data: make([]byte, 2*n)}}); err != nil {
		b.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	dst := make([]byte, 4*n)
	b.SetBytes(2 * n)
	for b.Loop() {
		if err := f.ReadAs("x", device.Float32, dst); err != nil {
			b.Fatal(err)
		}
	}
}
