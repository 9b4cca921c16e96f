package models

import (
	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op/aten"
)

// facts are what is to be known of a model beside its modules. The zero value
// is right for a module that says nothing.
type facts struct {
	context, vocabulary int // of a language model
	features, outputs   int // of a dense net
	// The attention: heads that share keys and values, and the elements of one.
	heads, kvHeads, headSize int
	packed                   bool    // queries, keys and values come in one tensor
	attentionDropout         float64 // the probability for the attention's weights
	caches                   bool    // keeps keys and values as it is called
	shiftsLabels             bool
	classes                  int    // of which a row's label names one; 0 where labels are one a token
	base                     string // the module below the head, whose name files without a head leave out
	// buffers are the shapes of what PyTorch's model keeps beside its parameters.
	buffers     [][]int
	tiedHead    []int  // the shape of a head's weight that is the embedding's
	window      int    // the keys that a query sees in some layers; 0 where all see all
	period      int    // after how many layers their kinds come again; 0 where they are alike
	notComputed string // what is right for predictions only, in a sentence
}

// factsOf asks a model.
func factsOf(m nn.Module) facts {
	if f, ok := m.(interface{ facts() facts }); ok {
		return f.facts()
	}
	return facts{}
}

// Sizes says what a model takes: the longest sequence and the vocabulary of a
// language model, or the number of features of a dense net.
func Sizes(c Config) (context, vocabulary, features int, err error) {
	m, err := New(c)
	if err != nil {
		return 0, 0, 0, err
	}
	f := factsOf(m)
	return f.context, f.vocabulary, f.features, nil
}

// Dense is the number of features that a dense net takes and of outputs that it
// has; 0 for a language model.
func Dense(c Config) (features, outputs int, err error) {
	m, err := New(c)
	if err != nil {
		return 0, 0, err
	}
	f := factsOf(m)
	return f.features, f.outputs, nil
}

// Caches reports whether a model keeps keys and values as it is called.
func Caches(m nn.Module) bool { return factsOf(m).caches }

// ShiftsLabels reports whether a model is one of transformers' causal language
// models, which compute the loss themselves: they convert logits to float32 and
// shift the labels.
func ShiftsLabels(m nn.Module) bool { return factsOf(m).shiftsLabels }

// LabelsRows reports whether a model's labels are one a row, not one a token; it
// computes the loss itself.
func LabelsRows(m nn.Module) bool { return Classes(m) > 0 }

// Classes is of how many classes a model says to which a row belongs; 0 where its labels
// are not one a row.
func Classes(m nn.Module) int { return factsOf(m).classes }

// ClassesOf is Classes of a config's model.
func ClassesOf(c Config) (int, error) {
	m, err := New(c)
	if err != nil {
		return 0, err
	}
	return Classes(m), nil
}

// Buffers lists the shapes of what a model keeps on the device beside its
// parameters in PyTorch.
func Buffers(m nn.Module) [][]int { return factsOf(m).buffers }

// Window is the number of keys that a query sees in layers with a window; 0 where
// there is none.
func Window(m nn.Module) int { return factsOf(m).window }

// TiedHead is the shape of a head's weight that is the embedding's; nil when
// the head has its own.
func TiedHead(m nn.Module) []int { return factsOf(m).tiedHead }

// CheckHeads finds that attention on a config's heads, computed in an element
// type, is not predicted: see aten.ChooseSDPA. cached says that keys and values
// are kept.
func CheckHeads(c Config, dt device.DType, cached bool) error {
	m, err := New(c)
	if err != nil {
		return err
	}
	f := factsOf(m)
	if f.heads == 0 {
		return nil
	}
	_, err = aten.ChooseSDPA(dt, f.heads, f.kvHeads, f.headSize, (!f.packed || !cached) && f.window == 0)
	return err
}

// LearnsPositions reports whether a model has a table of positions, which ends
// with its context.
func LearnsPositions(m nn.Module) bool {
	learns := false
	nn.Walk(m, func(_ string, m nn.Module) {
		e, ok := m.(*nn.Embedding)
		learns = learns || ok && e.OfPositions()
	})
	return learns
}
