package tidemark_test

import (
	"go/ast"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestDesignDocument: the files, folders and identifiers that docs/design.md names
// are there.
func TestDesignDocument(t *testing.T) {
	text, err := os.ReadFile("docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	exported := exportedNames(t)
	named := 0
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(string(text), -1) {
		name := m[1]
		_, err := os.Stat(name)
		switch {
		case err == nil:
			named++
		case strings.Contains(name, "/") || path.Ext(name) == ".go" || path.Ext(name) == ".json":
			t.Errorf("%s is not there", name)
		case regexp.MustCompile(`^(\w+\.)?[A-Z]\w*(\.[A-Z]\w*)?$`).MatchString(name):
			if named++; !exported[name] {
				t.Errorf("%s is no exported name", name)
			}
		}
	}
	if named < 60 {
		t.Errorf("only %d names were looked at", named)
	}
}

// exportedNames are Name, Type.Method, package.Name and package.Type.Method of all
// packages.
func exportedNames(t *testing.T) map[string]bool {
	names := map[string]bool{}
	sources := readSources(t)
	for i := range sources {
		s := &sources[i]
		if s.test() {
			continue
		}
		add := func(name string) { names[name], names[s.file.Name.Name+"."+name] = true, true }
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				add(receiver(d) + d.Name.Name)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if ts, ok := spec.(*ast.TypeSpec); ok {
						add(ts.Name.Name)
						if i, ok := ts.Type.(*ast.InterfaceType); ok {
							for _, m := range i.Methods.List {
								for _, n := range m.Names {
									add(ts.Name.Name + "." + n.Name)
								}
							}
						}
					}
					if vs, ok := spec.(*ast.ValueSpec); ok {
						for _, n := range vs.Names {
							add(n.Name)
						}
					}
				}
			}
		}
	}
	return names
}

// receiver is the type of a method and a dot; empty for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	x := d.Recv.List[0].Type
	if p, ok := x.(*ast.StarExpr); ok {
		x = p.X
	}
	if id, ok := x.(*ast.Ident); ok {
		return id.Name + "."
	}
	return ""
}
