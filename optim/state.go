package optim

import (
	"fmt"
	"strings"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
)

// entry is the state of one parameter.
type entry struct {
	parameter    string
	module, leaf string // of the parameter's name
	step         int64
	names        []string // of the buffers
	buffers      []Buffer
	counter      Buffer // the step on the device, if it is kept there
	seen         int64  // the lookup that last met this entry
}

// tensor is the i-th tensor of the state.
func (e *entry) tensor(i int) device.Tensor { return e.buffers[i].Tensor() }

// store keeps the entries of an optimizer.
type store struct {
	byName  map[string]*entry
	order   []*entry
	current []*entry // of the step's parameters, in their order
	lookups int64
}

// lookup sets current to the parameters' entries. New entries are made and
// given their tensors by allocate.
func (s *store) lookup(params []Parameter, allocate func(*entry, *Parameter) error) error {
	if s.byName == nil {
		s.byName = make(map[string]*entry)
	}
	s.lookups++
	s.current = s.current[:0]
	for i := range params {
		p := &params[i]
		e := s.byName[p.Name]
		if e == nil {
			at := strings.LastIndexByte(p.Name, '.')
			e = &entry{parameter: p.Name, leaf: p.Name[at+1:]}
			if at >= 0 {
				e.module = p.Name[:at]
			}
			if err := allocate(e, p); err != nil {
				e.release()
				return err
			}
			s.byName[p.Name] = e
			s.order = append(s.order, e)
		}
		if e.seen == s.lookups {
			return fmt.Errorf("parameter %q is given twice", p.Name)
		}
		e.seen = s.lookups
		s.current = append(s.current, e)
	}
	return nil
}

// add allocates a tensor of an entry's state.
func (e *entry) add(m Memory, name string, spec device.Spec) (device.Tensor, error) {
	b, err := m.Allocate(spec, e.label(instrument.OptimizerState, name))
	if err != nil {
		return device.Tensor{}, err
	}
	e.names, e.buffers = append(e.names, name), append(e.buffers, b)
	return b.Tensor(), nil
}

// label says what memory of this parameter is for.
func (e *entry) label(c instrument.Category, what string) instrument.Label {
	if c == instrument.OptimizerState {
		what = e.leaf + "." + what
	}
	return instrument.Label{Category: c, Module: e.module, Op: what}
}

func (e *entry) release() {
	for _, b := range e.buffers {
		b.Release()
	}
	if e.counter != nil {
		e.counter.Release()
	}
	e.buffers, e.names, e.counter = nil, nil, nil
}

// State implements Optimizer.
func (s *store) State() []ParameterState {
	list := make([]ParameterState, len(s.order))
	for i, e := range s.order {
		list[i] = ParameterState{Parameter: e.parameter, Step: e.step}
		for j, n := range e.names {
			list[i].Tensors = append(list[i].Tensors, NamedTensor{Name: n, Tensor: e.tensor(j)})
		}
	}
	return list
}

// Release implements Optimizer.
func (s *store) Release() {
	for _, e := range s.order {
		e.release()
	}
	clear(s.byName)
	s.order, s.current = nil, nil
}

// restore is Restore with the optimizer's way to allocate an entry of a given
// step.
func (s *store) restore(params []Parameter, steps map[string]int64, allocate func(*entry, *Parameter) error, load Loader) (err error) {
	s.Release()
	defer func() {
		if err != nil {
			s.Release()
		}
	}()
	var known []Parameter
	for _, p := range params {
		n, ok := steps[p.Name]
		if !ok {
			continue
		}
		if n < 0 {
			return fmt.Errorf("optimizer state of %s: step %d is negative", p.Name, n)
		}
		known = append(known, p)
	}
	err = s.lookup(known, func(e *entry, p *Parameter) error {
		e.step = steps[p.Name]
		if err := allocate(e, p); err != nil {
			return err
		}
		for i, name := range e.names {
			if err := load(e.parameter, name, e.tensor(i)); err != nil {
				return fmt.Errorf("optimizer state %s of %s: %w", name, e.parameter, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(s.order) != len(steps) {
		for name := range steps {
			if s.byName[name] == nil {
				return fmt.Errorf("optimizer state of %q: the model has no such parameter", name)
			}
		}
	}
	return nil
}

// variable holds a temporary, as a variable of the Python code that it mirrors
// does: what it held before goes when it is set.
type variable struct{ b Buffer }

func (v *variable) set(b Buffer) {
	if v.b != nil {
		v.b.Release()
	}
	v.b = b
}

// take gives what is held away.
func (v *variable) take() Buffer {
	b := v.b
	v.b = nil
	return b
}

// temporaries are buffers with one lifetime. They go last to first, as the
// elements of a Python list do.
type temporaries []Buffer

func (t *temporaries) release() {
	for i := len(*t) - 1; i >= 0; i-- {
		(*t)[i].Release()
	}
	*t = (*t)[:0]
}

// like allocates a temporary of a tensor's spec.
func (t *temporaries) like(m Memory, e *entry, x device.Tensor, op string) (device.Tensor, error) {
	b, err := m.Allocate(x.Spec, e.label(instrument.OptimizerTemporary, op))
	if err != nil {
		return device.Tensor{}, err
	}
	*t = append(*t, b)
	return b.Tensor(), nil
}
