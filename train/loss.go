package train

import (
	"fmt"
	"strings"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// ignoreIndex is the target that the cross-entropy leaves out, as in PyTorch.
const ignoreIndex = -100

// Loss is what a model is trained to make small. Losses are equal where they
// are the same one; the zero Loss is none.
type Loss struct{ row *lossRow }

// LossFunc makes a loss, a scalar: of a model's output, whose first columns count
// (the others are padding), and of targets, nil where the loss has none.
type LossFunc func(b *nn.Builder, output *gorgonia.Node, columns int, targets *gorgonia.Node) (*gorgonia.Node, error)

type lossRow struct {
	name    string
	targets bool
	pads    bool // the output may have columns that do not count
	// classes says that targets are the columns of the output that are right, of
	// which an evaluation counts how often the largest output is one.
	classes bool
	build   LossFunc
}

// NewLoss is a loss of one's own by a name. Where it has targets, they are whole
// numbers: one a token, (rows, tokens), or one a row of a dense net, (rows).
func NewLoss(name string, targets bool, build LossFunc) Loss {
	return Loss{&lossRow{name: name, targets: targets, build: build}}
}

// The losses that have a name on the command line: the mean cross-entropy against
// whole numbers, and the mean of the outputs, which needs no targets.
var (
	CrossEntropy = Loss{&lossRow{name: "cross-entropy", targets: true, pads: true, classes: true, build: crossEntropy}}
	MeanOutput   = Loss{&lossRow{name: "mean", build: meanOutput}}
)

// Losses lists the losses that have a name on the command line.
func Losses() []Loss { return []Loss{CrossEntropy, MeanOutput} }

// LossNamed is the loss of a name.
func LossNamed(name string) (Loss, error) {
	var names []string
	for _, l := range Losses() {
		if l.row.name == name {
			return l, nil
		}
		names = append(names, l.row.name)
	}
	return Loss{}, fmt.Errorf("loss %q is not known: it is %s", name, strings.Join(names, " or "))
}

func (l Loss) String() string {
	if l.row == nil {
		return ""
	}
	return l.row.name
}

// Targets reports whether the loss compares the output with targets.
func (l Loss) Targets() bool { return l.row != nil && l.row.targets }

// Pads reports whether the output may have columns more than count.
func (l Loss) Pads() bool { return l.row != nil && l.row.pads }

// MarshalText writes the loss's name.
func (l Loss) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads the name of one of Losses.
func (l *Loss) UnmarshalText(b []byte) (err error) {
	*l, err = LossNamed(string(b))
	return err
}

func crossEntropy(b *nn.Builder, output *gorgonia.Node, columns int, targets *gorgonia.Node) (*gorgonia.Node, error) {
	if b.Eager() {
		return eagerLoss(b, output, targets)
	}
	return op.CrossEntropyOf(output, targets, columns, ignoreIndex)
}

func meanOutput(b *nn.Builder, output *gorgonia.Node, _ int, _ *gorgonia.Node) (*gorgonia.Node, error) {
	if b.Eager() {
		return eagerLoss(b, output, nil)
	}
	return op.Mean(output)
}
