package data

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// GoDocCorpus writes English text that every machine with Go has: the
// documentation comments of the standard library in the Go installation at
// goroot (what `go env GOROOT` prints), in the order of their files, several
// megabytes of them, each once and with an empty line behind it. It returns
// the bytes written.
//
// The text is the same on every system for one version of Go. Files are taken
// whatever system they are for; tests and vendored packages are left out, and
// so are comments with anything but printable ASCII, so that the text has fewer
// than 100 different characters.
func GoDocCorpus(w io.Writer, goroot string) (int64, error) {
	src := filepath.Join(goroot, "src")
	if _, err := os.Stat(filepath.Join(src, "fmt", "print.go")); err != nil {
		return 0, fmt.Errorf("corpus of Go documentation: %q holds no standard library, want the folder that `go env GOROOT` prints: %w", goroot, err)
	}
	c := &corpus{w: bufio.NewWriter(w), seen: map[string]bool{}}
	err := filepath.WalkDir(src, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if name == "testdata" || name == "vendor" || path == filepath.Join(src, "cmd") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		return c.file(path)
	})
	if err == nil {
		err = c.w.Flush()
	}
	if err != nil {
		return c.bytes, fmt.Errorf("corpus of Go documentation: %w", err)
	}
	return c.bytes, nil
}

// corpus collects comments.
type corpus struct {
	w     *bufio.Writer
	seen  map[string]bool
	bytes int64
}

// file takes the documentation comments of one file in the order they stand.
func (c *corpus) file(path string) error {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(f, func(n ast.Node) bool {
		var doc *ast.CommentGroup
		switch n := n.(type) {
		case *ast.File:
			doc = n.Doc
		case *ast.FuncDecl:
			doc = n.Doc
		case *ast.GenDecl:
			doc = n.Doc
		case *ast.TypeSpec:
			doc = n.Doc
		case *ast.ValueSpec:
			doc = n.Doc
		case *ast.Field:
			doc = n.Doc
		case *ast.BlockStmt:
			return false
		}
		if doc != nil && err == nil {
			err = c.comment(doc.Text())
		}
		return err == nil
	})
	return err
}

func (c *corpus) comment(text string) error {
	if text == "" || c.seen[text] || strings.ContainsFunc(text, foreign) {
		return nil
	}
	c.seen[text] = true
	n, err := c.w.WriteString(text + "\n")
	c.bytes += int64(n)
	return err
}

// foreign is true for what the corpus has no character for.
func foreign(r rune) bool { return r != '\n' && r != '\t' && (r < ' ' || r > '~') }
