package op

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// colliding makes two inputs of a graph whose hashes are one number. Gorgonia
// hashes a node's operands, so that one operation on either collides too.
func colliding(t *testing.T) (x, y *gorgonia.Node) {
	t.Helper()
	trial := gorgonia.NewGraph()
	input := func(g *gorgonia.ExprGraph, name string) *gorgonia.Node {
		return gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(2, 3), gorgonia.WithName(name))
	}
	seen, names := map[uint32]string{}, rand.New(rand.NewPCG(1, 2))
	for i := range 1 << 19 {
		name := strconv.FormatUint(names.Uint64(), 36)
		h := input(trial, name).Hashcode()
		if other, ok := seen[h]; ok {
			g := gorgonia.NewGraph()
			return input(g, other), input(g, name)
		}
		seen[h] = name
		if i%1024 == 0 {
			trial = gorgonia.NewGraph()
		}
	}
	t.Fatal("no two names collide")
	return nil, nil
}

// An operation on operands whose hashes collide is a node of its own for each.
func TestOperandsTellNodesApart(t *testing.T) {
	x, y := colliding(t)
	if x == y || x.Hashcode() != y.Hashcode() {
		t.Fatalf("inputs %v and %v do not collide", x, y)
	}
	for name, f := range map[string]func(x, y *gorgonia.Node) (*gorgonia.Node, error){
		"relu":  func(x, _ *gorgonia.Node) (*gorgonia.Node, error) { return ReLU(x) },
		"scale": func(x, _ *gorgonia.Node) (*gorgonia.Node, error) { return Scale(x, 2) },
		"add":   Add,
	} {
		a, err := f(x, y)
		if err != nil {
			t.Fatal(err)
		}
		b, err := f(y, x)
		if err != nil {
			t.Fatal(err)
		}
		if a == b || Operands(a)[0] != x || Operands(b)[0] != y {
			t.Errorf("%s of %v and of %v: nodes %v on %v and %v on %v", name, x, y, a, Operands(a), b, Operands(b))
		}
		if again, err := f(x, y); err != nil || again != a {
			t.Errorf("%s of %v again: %v, %v; want %v", name, x, again, err, a)
		}
	}
}
