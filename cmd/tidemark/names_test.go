package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/optim"
)

// What varies with an optimizer, a device … is a column of the table that its
// package keeps: nobody else asks what it is called.
func TestNamesAreComparedWhereTheTableIs(t *testing.T) {
	optimizers := optim.Names()
	for _, i := range []optim.Implementation{optim.Foreach, optim.Loop, optim.Fused} {
		optimizers = append(optimizers, string(i), "-"+string(i))
	}
	tables := []struct {
		of, folder string // whose names, and where they may be compared
		names      []string
	}{
		{"an optimizer", "optim", optimizers},
		{"a device", "device", []string{device.KindMeta.Name, device.KindCPU.Name, device.KindCUDA.Name, device.KindCUDA.Name + ":"}},
	}
	files := token.NewFileSet()
	read := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." && path != "../.." || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		read++
		folder, _ := filepath.Rel("../..", filepath.Dir(path))
		for _, c := range compared(f) {
			for _, table := range tables {
				if slices.Contains(table.names, c.text) && folder != filepath.FromSlash(table.folder) {
					t.Errorf("%s compares %q, which is %s's name: ask a column of the table in %s", files.Position(c.at), c.text, table.of, table.folder)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if read < 300 {
		t.Errorf("only %d files were read", read)
	}
}

// comparison is a string that a program compares something with.
type comparison struct {
	text string
	at   token.Pos
}

// compared are the strings in comparisons of a file: operands of == and !=, cases
// of a switch, arguments of package strings and slices, keys.
func compared(f *ast.File) (all []comparison) {
	add := func(list ...ast.Expr) {
		for _, e := range list {
			if s, ok := e.(*ast.BasicLit); ok && s.Kind == token.STRING {
				if text, err := strconv.Unquote(s.Value); err == nil {
					all = append(all, comparison{text, s.Pos()})
				}
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				add(n.X, n.Y)
			}
		case *ast.CaseClause:
			add(n.List...)
		case *ast.IndexExpr:
			add(n.Index)
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && (x.Name == "strings" || x.Name == "slices") {
					add(n.Args...)
				}
			}
		}
		return true
	})
	return all
}

// The test above sees every kind of comparison.
func TestComparedSeesComparisons(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
func f(s string, m map[string]int) bool {
	switch s {
	case "a", "b":
	}
	_ = "no" + s
	return s == "c" || "d" != s || m["e"] > 0 || strings.HasPrefix(s, "f") || slices.Contains(nil, "g")
}`, 0)
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, c := range compared(f) {
		seen = append(seen, c.text)
	}
	if got := strings.Join(seen, ""); got != "abcdefg" {
		t.Errorf("seen are %q", got)
	}
}
