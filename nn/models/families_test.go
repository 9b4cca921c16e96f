package models_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/nn/models"
)

// familyTests finds where a file decides by the name of a family or by the type
// of a model of this package.
func familyTests(file *ast.File) []ast.Node {
	named := func(e ast.Expr) bool {
		l, ok := e.(*ast.BasicLit)
		if !ok || l.Kind != token.STRING {
			return false
		}
		s, err := strconv.Unquote(l.Value)
		if err != nil {
			return false
		}
		for _, f := range models.Families() {
			if strings.EqualFold(s, f) {
				return true
			}
		}
		return false
	}
	typed := func(e ast.Expr) bool {
		if p, ok := e.(*ast.StarExpr); ok {
			e = p.X
		}
		s, ok := e.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		x, ok := s.X.(*ast.Ident)
		return ok && x.Name == "models"
	}
	var found []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		var operands []ast.Expr
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				operands = []ast.Expr{n.X, n.Y}
			}
		case *ast.CaseClause:
			operands = n.List
		case *ast.KeyValueExpr: // of a map
			operands = []ast.Expr{n.Key}
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && (s.Sel.Name == "HasPrefix" || s.Sel.Name == "Contains" || s.Sel.Name == "EqualFold") {
				operands = n.Args
			}
		case *ast.TypeAssertExpr:
			if n.Type != nil && typed(n.Type) {
				found = append(found, n)
			}
		}
		for _, e := range operands {
			if _, clause := n.(*ast.CaseClause); named(e) || clause && typed(e) {
				found = append(found, n)
			}
		}
		return true
	})
	return found
}

// TestNothingOutsideComparesFamilies holds what a family is to this package's
// table.
func TestNothingOutsideComparesFamilies(t *testing.T) {
	files, fset := 0, token.NewFileSet()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == filepath.Join("..", "..", "nn", "models") || d.Name() == "testdata" || len(d.Name()) > 2 && d.Name()[0] == '.') {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files++
		for _, n := range familyTests(f) {
			t.Errorf("%v decides by a family's name or a model's type: what a family is belongs into its row in nn/models", fset.Position(n.Pos()))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 150 {
		t.Errorf("only %d files were looked at", files)
	}
}

func TestFamilyTestsAreFound(t *testing.T) {
	for _, code := range []string{
		`if c.Type() == "gpt2" {}`, `if "mlp" != kind {}`, `switch kind { case "x", "qwen2": }`, `_ = map[string]int{"llama": 1}`,
		`if strings.HasPrefix(kind, "Qwen2") {}`, `_, ok := m.(*models.MLP)`, `switch m.(type) { case *models.GPT: }`,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc f() { "+code+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(familyTests(f)) != 1 {
			t.Errorf("%s is not found", code)
		}
	}
}
