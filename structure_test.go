// Package tidemark_test holds the shape of the whole to its rules: rooms whose
// imports point down, none too large, of functions that fit a screen.
package tidemark_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tidemark-lab/tidemark/"

// rooms are the packages from the top down: each imports only those below it.
var rooms = []string{
	"cmd/tidemark", "cmd/tidemark/snapshots", "cmd/tidemark/shell",
	"bench/gpu", "bench",
	"scenarios", "scenarios/hooks", "scenarios/harness",
	"predict/accuracy/accuracydoc", "predict/accuracy", "predict",
	"train/conformance", "train", "train/session", "train/plan",
	"optim",
	"nn/models", "nn/encoder", "nn", "nn/op/aten", "nn/op", "nn/op/host",
	"nn/op/gemm", "nn/op/gemm/internal/openblas", "nn/op/gemm/asm", "nn/op/simd", "nn/op/simd/asm",
	"data/gocorpus", "data", "data/safetensors", "data/tokenizer",
	"instrument/view", "instrument/explain", "instrument/explain/infer",
	"instrument/report/page", "instrument/report/chart", "instrument/report", "instrument/report/internal/made",
	"instrument/snapshot/replay", "instrument/snapshot", "instrument/show",
	"device/catalog", "device/cuda", "device/cuda/internal/genload", "device/precision", "device/kernel", "device",
	"instrument", "device/alloc", "device/size",
}

// The limits, in lines and branches.
const (
	maxFunctionLines    = 80
	maxFunctionBranches = 25
	maxFileLines        = 500
	maxPackageLines     = 3500 // tests apart
)

var (
	// large are the packages that hold a kernel beside a kernel.
	large = []string{"nn/op", "device/cuda"}
	// generators write assembly or C, instruction by instruction.
	generators = []string{"nn/op/gemm/asm", "nn/op/simd/asm", "device/cuda/internal/genload"}
	// noNames say nothing of what a package holds.
	noNames = []string{"util", "utils", "common", "helper", "helpers", "misc", "shared"}
)

// source is one file as the rules see it.
type source struct {
	path  string // slashes, from the root
	lines int
	file  *ast.File
	set   *token.FileSet
}

func (s *source) dir() string { return path.Dir(s.path) }

func (s *source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

func readSources(t *testing.T) []source {
	t.Helper()
	var list []source
	err := fs.WalkDir(os.DirFS("."), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || p != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || path.Ext(p) != ".go":
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		s := source{path: p, lines: bytes.Count(text, []byte("\n")), set: token.NewFileSet()}
		if s.file, err = parser.ParseFile(s.set, p, text, parser.SkipObjectResolution); err != nil {
			return err
		}
		list = append(list, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// branches counts what divides the way through a function: conditions, loops
// and cases.
func branches(f *ast.FuncDecl) int {
	n := 0
	ast.Inspect(f, func(x ast.Node) bool {
		switch x := x.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if x.List != nil {
				n++
			}
		case *ast.CommClause:
			if x.Comm != nil {
				n++
			}
		}
		return true
	})
	return n
}

// inFile lists what is wrong in one file: what, and how.
func inFile(s *source) map[string]string {
	found := map[string]string{}
	if s.lines > maxFileLines {
		found[s.path] = fmt.Sprintf("%d lines, more than %d", s.lines, maxFileLines)
	}
	if slices.Contains(noNames, strings.TrimSuffix(s.file.Name.Name, "_test")) {
		found[s.path+" package "+s.file.Name.Name] = "says nothing of what it holds"
	}
	if slices.Contains(generators, s.dir()) {
		return found
	}
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		lines := s.set.Position(f.End()).Line - s.set.Position(f.Pos()).Line + 1
		if n := branches(f); lines > maxFunctionLines || n > maxFunctionBranches {
			found[s.path+" "+f.Name.Name] = fmt.Sprintf("%d lines and %d branches, more than %d or %d", lines, n, maxFunctionLines, maxFunctionBranches)
		}
	}
	return found
}

// upward lists the imports of a file that do not point down.
func upward(s *source) map[string]string {
	found := map[string]string{}
	if s.test() || s.dir() == "." {
		return found
	}
	from := slices.Index(rooms, s.dir())
	if from < 0 {
		found[s.dir()] = "is in no place of the table of rooms"
		return found
	}
	for _, i := range s.file.Imports {
		name, own := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module)
		if to := slices.Index(rooms, name); own && to <= from {
			found[s.dir()+" imports "+name] = "does not point down the table of rooms"
		}
	}
	return found
}

func TestStructure(t *testing.T) {
	found := map[string]string{}
	add := func(list map[string]string) {
		for what, how := range list {
			found[what] = how
		}
	}
	sizes := map[string]int{}
	sources := readSources(t)
	for i := range sources {
		s := &sources[i]
		add(inFile(s))
		add(upward(s))
		if !s.test() {
			sizes[s.dir()] += s.lines
		}
	}
	for dir, n := range sizes {
		if n > maxPackageLines && !slices.Contains(large, dir) {
			found["package "+dir] = fmt.Sprintf("%d lines, more than %d", n, maxPackageLines)
		}
	}
	for _, room := range rooms {
		if sizes[room] == 0 {
			found["room "+room] = "is not there"
		}
	}
	for what, how := range found {
		t.Errorf("%s: %s", what, how)
	}
}
