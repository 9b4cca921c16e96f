package safetensors

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOpenFolder reads shards by their index, and refuses each thing that an
// index can have wrong in one line that names it.
func TestOpenFolder(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	shard := func(file string, names ...string) {
		t.Helper()
		var list []Tensor
		for _, n := range names {
			list = append(list, Tensor{Name: n, DType: F32, Shape: []int{2}, Write: func(w io.Writer) error {
				_, err := w.Write([]byte{0, 0, 128, 63, 0, 0, 0, 64})
				return err
			}})
		}
		if err := Write(filepath.Join(dir, file), nil, list); err != nil {
			t.Fatal(err)
		}
	}
	fails := func(want string) {
		t.Helper()
		f, err := OpenFolder(dir)
		if err == nil {
			f.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	fails("holds neither model.safetensors nor model.safetensors.index.json")
	put("pytorch_model.bin", "x")
	fails("save the model as safetensors")
	for text, want := range map[string]string{
		"{":                                  "is no index of shards",
		`{"weight_map":{}}`:                  "lists no tensors",
		`{"weight_map":{"a":"../x"}}`:        `the file of a, "../x", is none in the folder`,
		`{"weight_map":{"a":"1"}}`:           "no such file",
		`{"weight_map":{"a":["1"]}}`:         "is no index of shards",
		`{"weight_map":{"a":"s1","c":"s1"}}`: "c is not in s1, where it is said to be",
		`{"weight_map":{"a":"s1"}}`:          "b of " + filepath.Join(dir, "s1") + " is not listed there",
		`{"weight_map":{"a":"/etc/passwd"}}`: "is none in the folder",
	} {
		shard("s1", "a", "b")
		put(IndexFile, text)
		fails(want)
		os.Remove(filepath.Join(dir, "s1"))
	}
	shard("s1", "a", "b")
	shard("s2", "c")
	put(IndexFile, `{"metadata":{},"weight_map":{"a":"s1","b":"s1","c":"s2"}}`)
	f, err := OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := f.Names(); !slices.Equal(got, []string{"a", "b", "c"}) || !f.Has("c") || f.Has("d") {
		t.Errorf("the tensors are %v", got)
	}
	if v, err := f.ReadFloat32s("c"); err != nil || !slices.Equal(v, []float32{1, 2}) {
		t.Errorf("c is %v, %v", v, err)
	}
	if _, err := f.Info("d"); err == nil || !strings.Contains(err.Error(), `"d"`) {
		t.Error(err)
	}
	shard(ModelFile, "whole")
	if f, err := OpenFolder(dir); err != nil || !slices.Equal(f.Names(), []string{"whole"}) {
		t.Errorf("with %s: %v", ModelFile, err)
	}
}
