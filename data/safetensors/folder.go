package safetensors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/tidemark-lab/tidemark/device"
)

// The names that Hugging Face's libraries give a model's files: one, or an index
// of several shards.
const (
	ModelFile = "model.safetensors"
	IndexFile = "model.safetensors.index.json"
)

// maxIndexBytes bounds an index: a line for each tensor.
const maxIndexBytes = 64 << 20

// Folder is the tensors of a model, which lie in one file or in several shards.
type Folder struct {
	path  string
	files map[string]*File // by name in the folder
	shard map[string]*File // by tensor
}

// OpenFolder opens the tensors in a folder: those of model.safetensors, or else
// those of the shards that model.safetensors.index.json lists. What the index
// says of each tensor must be so.
func OpenFolder(dir string) (_ *Folder, err error) {
	f := &Folder{path: filepath.Join(dir, ModelFile), files: map[string]*File{}, shard: map[string]*File{}}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	file, err := Open(f.path)
	if err == nil {
		f.files[ModelFile] = file
		for _, name := range file.Names() {
			f.shard[name] = file
		}
		return f, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f.path = filepath.Join(dir, IndexFile)
	weights, err := readIndex(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, e := os.Stat(filepath.Join(dir, "pytorch_model.bin")); e == nil {
			return nil, fmt.Errorf("%s has weights as a pickle, pytorch_model.bin, which is not read: save the model as safetensors", dir)
		}
		return nil, fmt.Errorf("%s holds neither %s nor %s", dir, ModelFile, IndexFile)
	}
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		if err := f.add(dir, name, weights[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", f.path, err)
		}
	}
	return f, f.unlisted()
}

// readIndex is which file each tensor lies in.
func readIndex(path string) (map[string]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	defer file.Close()
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.NewDecoder(io.LimitReader(file, maxIndexBytes)).Decode(&index); err != nil {
		return nil, fmt.Errorf("safetensors: %s is no index of shards: %w", path, err)
	}
	if len(index.WeightMap) == 0 {
		return nil, fmt.Errorf("safetensors: %s lists no tensors (weight_map)", path)
	}
	return index.WeightMap, nil
}

// add takes a tensor of a shard.
func (f *Folder) add(dir, name, shard string) error {
	file := f.files[shard]
	if file == nil {
		if filepath.Base(shard) != shard || !filepath.IsLocal(shard) {
			return fmt.Errorf("the file of %s, %q, is none in the folder", name, shard)
		}
		var err error
		if file, err = Open(filepath.Join(dir, shard)); err != nil {
			return err
		}
		f.files[shard] = file
	}
	if !file.Has(name) {
		return fmt.Errorf("%s is not in %s, where it is said to be", name, shard)
	}
	f.shard[name] = file
	return nil
}

// unlisted refuses shards with tensors that the index does not list there.
func (f *Folder) unlisted() error {
	for _, file := range f.files {
		for _, name := range file.Names() {
			if f.shard[name] != file {
				return fmt.Errorf("%s: %s of %s is not listed there", f.path, name, file.Path())
			}
		}
	}
	return nil
}

// Close closes the files.
func (f *Folder) Close() error {
	var err error
	for _, file := range f.files {
		err = errors.Join(err, file.Close())
	}
	return err
}

// Path is that of the one file, or of the index.
func (f *Folder) Path() string { return f.path }

// Names lists the tensors.
func (f *Folder) Names() []string { return slices.Sorted(maps.Keys(f.shard)) }

// Has reports whether there is a tensor of a name.
func (f *Folder) Has(name string) bool { return f.shard[name] != nil }

// Info describes a tensor.
func (f *Folder) Info(name string) (Info, error) {
	if file := f.shard[name]; file != nil {
		return file.Info(name)
	}
	for _, file := range f.files {
		if len(f.files) == 1 {
			return file.Info(name) // its error says what is like it
		}
	}
	return Info{}, fmt.Errorf("%s has no tensor %q", f.path, name)
}

// ReadFloat32s reads a tensor as File.ReadFloat32s does.
func (f *Folder) ReadFloat32s(name string) ([]float32, error) {
	if file := f.shard[name]; file != nil {
		return file.ReadFloat32s(name)
	}
	_, err := f.Info(name)
	return nil, err
}

// ReadAs reads a tensor as File.ReadAs does.
func (f *Folder) ReadAs(name string, dtype device.DType, dst []byte) error {
	if file := f.shard[name]; file != nil {
		return file.ReadAs(name, dtype, dst)
	}
	_, err := f.Info(name)
	return err
}
