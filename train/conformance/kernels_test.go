package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/device/kernel"
)

// listening is a meta device that notes the kernels it is asked for.
type listening struct {
	*device.Meta
	heard map[string]bool
}

func (d listening) Run(c *device.Call) error {
	d.heard[c.Kernel] = true
	return d.Meta.Run(c)
}

// Download gives zeros: what is computed does not matter here.
func (listening) Download([]byte, device.Tensor) error { return nil }

// Every portable operation, forward and backward, in every composition and
// precision, has a kernel on a card, and the list of those kernels holds nothing
// that no operation asks for.
func TestPortableOperationsHaveKernelsOnCards(t *testing.T) {
	dev := listening{device.NewMeta(alloc.Config{}), map[string]bool{}}
	for _, c := range Cases() {
		d := c.draw(t, random(c.Name+" kernels"), 1)
		for _, comp := range compositions {
			for _, dt := range []device.DType{device.Float32, device.BFloat16} {
				mustExecute(t, mustCompile(t, d, comp, dt, false), dev, d, 2)
			}
		}
	}
	if len(dev.heard) < 40 {
		t.Fatalf("only %d kernels were asked for", len(dev.heard))
	}
	for name := range named(t) {
		dev.heard[name] = true
	}
	for name := range dev.heard {
		if !kernel.HasCard(name) {
			t.Errorf("%s is a kernel of package nn/op, and no card has it: add a launcher to device/cuda and its name to device/kernel", name)
		}
	}
	for _, name := range kernel.OnCards() {
		optimizer := strings.HasPrefix(name, "foreach.") || strings.HasPrefix(name, "adam.") || strings.HasPrefix(name, "sgd.") ||
			strings.HasPrefix(name, "adafactor.") || strings.HasPrefix(name, "lion.") || strings.HasPrefix(name, "grad_")
		initial := strings.HasPrefix(name, "fill")
		if !optimizer && !initial && !dev.heard[name] {
			t.Errorf("cards have %s, and no operation asks for it", name)
		}
	}
}

// named are the kernels that the source of package op names in full and that are
// computed, and not views: an operation without a case shows here.
func named(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("../../nn/op/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no source of package op: %v", err)
	}
	names := map[string]bool{}
	note := func(e ast.Expr) {
		if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if s, err := strconv.Unquote(l.Value); err == nil && s != "fill." {
				names[s] = true
			}
		}
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				var name ast.Expr
				for _, e := range n.Elts {
					if kv, ok := e.(*ast.KeyValueExpr); ok {
						switch k, _ := kv.Key.(*ast.Ident); {
						case k != nil && k.Name == "Kernel":
							name = kv.Value
						case k != nil && k.Name == "View":
							return true
						}
					}
				}
				note(name)
			case *ast.AssignStmt:
				for i, l := range n.Lhs {
					if s, ok := l.(*ast.SelectorExpr); ok && s.Sel.Name == "Kernel" && i < len(n.Rhs) {
						note(n.Rhs[i])
					}
				}
			}
			return true
		})
	}
	if len(names) < 20 {
		t.Fatalf("only %d kernels are named in package op", len(names))
	}
	return names
}
