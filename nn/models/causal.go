package models

import (
	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/nn"
)

// causalLM is a language model of transformers: a model and a head.
type causalLM struct {
	name, inner string
	model       nn.Module
	head        *nn.Linear
	softCap     float64 // bounds logits; 0 for no bound
	known       facts
}

func (l *causalLM) Type() string { return l.name }

func (l *causalLM) Members(m *nn.Members) {
	m.Module(l.inner, l.model)
	m.Module("lm_head", l.head)
}

func (l *causalLM) facts() facts {
	f := l.known
	f.shiftsLabels, f.base = true, l.inner
	nn.Walk(l.model, func(_ string, m nn.Module) {
		if e, ok := m.(*nn.Embedding); ok && e.Weight == l.head.Weight {
			f.tiedHead = e.Weight.Shape
		}
	})
	return f
}

// Forward takes ids (B, T) and returns logits (B, T, V).
func (l *causalLM) Forward(b *nn.Builder, in ...*gorgonia.Node) (nn.Output, error) {
	ids, err := nn.OneInput(l, in)
	if err != nil {
		return nn.Output{}, err
	}
	out, err := b.Call(l.inner, l.model, ids)
	if err != nil {
		return nn.Output{}, err
	}
	b.HoldWithLoss(out.One())
	if out, err = b.Call("lm_head", l.head, out.One()); err != nil {
		return nn.Output{}, err
	}
	if l.softCap > 0 {
		n, err := b.SoftCap(out.Nodes[0], l.softCap)
		if err != nil {
			return nn.Output{}, err
		}
		out.Nodes = []*gorgonia.Node{n}
	}
	b.HoldCache()
	return nn.Output{Nodes: out.Nodes, Form: nn.FormRecord, Columns: out.Columns}, nil
}
