package plan

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"unsafe"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// buffer is memory that holds nothing yet, which reads as not a number.
type buffer []float64

func newBuffer(bytes int64) buffer {
	b := make(buffer, (bytes+7)/8)
	for i := range b {
		b[i] = math.NaN()
	}
	return b
}

func (b buffer) at(s device.Spec, offset uint64) device.Tensor {
	if len(b) == 0 {
		return device.Tensor{Spec: s}
	}
	return device.Tensor{Spec: s, Addr: uint64(uintptr(unsafe.Pointer(&b[0]))) + offset}
}

// naive computes nodes one by one as their operations say, each into memory of
// its own that is kept for good.
type naive struct {
	results map[result]buffer
	keys    uint64 // of random draws
}

// value is a result, computed if it is not there.
func (e *naive) value(r result) (buffer, error) {
	if b, ok := e.results[r]; ok {
		return b, nil
	}
	if r.node.Op() == nil {
		return nil, fmt.Errorf("%v has no value", r.node)
	}
	if op.IsGorgoniaAdd(r.node) {
		if err := e.sum(r.node); err != nil {
			return nil, err
		}
		return e.results[r], nil
	}
	d, err := describe(r.node)
	if err != nil {
		return nil, err
	}
	c := device.Call{Kernel: d.Kernel, Attributes: d.Attributes, Host: d.Host}
	var in []buffer
	for _, x := range reads(r.node) {
		b, err := e.value(x)
		if err != nil {
			return nil, err
		}
		in = append(in, b)
	}
	for i, n := range op.Operands(r.node) {
		c.In = append(c.In, in[i].at(op.OperandSpec(n), 0))
	}
	for i, u := range d.Uses {
		o := u.Node.Op()
		spec := d.Out // a part of a gradient, which is like the others
		if p, ok := o.(*op.Operation); ok {
			spec = p.Describe().Extras[u.Extra]
		}
		c.In = append(c.In, in[len(d.In)+i].at(spec, 0))
	}
	out := newBuffer(d.Out.Bytes())
	e.results[result{r.node, -1}] = out
	if v := d.View; v != nil {
		x := c.In[v.Operand]
		if v.Extra >= 0 {
			x = c.In[len(d.In)]
		}
		x.Addr += uint64(v.Offset * d.Out.DType.Size())
		x.Spec = d.Out
		copy(out.at(d.Out, 0).RawBytes(), x.RawBytes())
		return e.results[r], nil
	}
	c.Out = []device.Tensor{out.at(d.Out, 0)}
	for i, s := range d.Extras {
		b := newBuffer(s.Bytes())
		e.results[result{r.node, i}] = b
		c.Out = append(c.Out, b.at(s, 0))
	}
	return e.results[r], launch(&c, d, e.keys)
}

// sum adds contributions up. Those that are parts of one gradient are its
// result and extras instead.
func (e *naive) sum(n *gorgonia.Node) error {
	var leaves []*gorgonia.Node
	var collect func(n *gorgonia.Node)
	collect = func(n *gorgonia.Node) {
		for _, in := range op.Operands(n) {
			if op.IsGorgoniaAdd(in) {
				collect(in)
			} else {
				leaves = append(leaves, in)
			}
		}
	}
	collect(n)
	var total buffer
	for _, l := range leaves {
		b, err := e.value(result{l, -1})
		if err != nil {
			return err
		}
		if o, ok := l.Op().(*op.Operation); ok && o.Describe().Part > 0 {
			e.results[result{n, o.Describe().Part - 2}] = b
			continue
		}
		if total == nil {
			total = slices.Clone(b)
			continue
		}
		for i := range total {
			total[i] += b[i]
		}
	}
	if total != nil {
		e.results[result{n, -1}] = total
	}
	return nil
}

// launch runs a kernel with its scratch and its key of random draws.
func launch(c *device.Call, d *op.Description, keys uint64) error {
	if d.Random {
		c.Seed, c.Pass = 1, int64(keys)
	}
	if d.ScratchBytes > 0 {
		c.Scratch = newBuffer(d.ScratchBytes).at(device.Spec{DType: device.Uint8, Shape: []int{int(d.ScratchBytes)}}, 0)
	}
	if err := d.Host(c); err != nil {
		return fmt.Errorf("%s: %w", d.Kernel, err)
	}
	return nil
}

// machine runs a plan as a session does, on memory that it distrusts: it knows
// for each storage whether it is there and which values are in it, and finds
// whoever reads what is not.
type machine struct {
	c         *compiler
	p         *Plan
	memory    []buffer // by storage; nil: not there
	contents  [][]int  // by storage: the values that are in it
	began     []bool
	parameter map[*nn.Parameter]buffer
	gradient  map[*nn.Parameter]buffer
	deposited map[int]bool
	shared    map[int]bool // storages that are a gradient of an earlier pass
	at        int          // the step
	counts    *counts
	keys      uint64
}

// counts is how often a rule was met, over all cases.
type counts struct {
	takenOver, addedInto, direct, handedOver, copied, addedLater    int
	recomputed, kept, grouped, sumsInPlace, sumsElsewhere, heldLast int
	savedInputs, views, validated                                   int
}

// fault is a broken rule, which ends the run.
type fault struct{ error }

func (m *machine) fail(format string, a ...any) {
	where := "begin"
	if m.at < len(m.p.Steps) {
		s := &m.p.Steps[m.at]
		where = fmt.Sprintf("step %d of %d (forward %d), deposit %d", m.at, len(m.p.Steps), m.p.ForwardSteps, s.Deposit)
		if s.Description != nil {
			where += ", " + s.Description.Kernel
		}
	}
	panic(fault{fmt.Errorf("%s: %s", where, fmt.Sprintf(format, a...))})
}

// span is the bytes of a storage that a value has.
func (m *machine) span(v int) (from, to uint64) {
	x := m.p.Values[v]
	return x.Offset, x.Offset + uint64(x.Spec.Bytes())
}

// read finds a value, which must be there whole.
func (m *machine) read(v int) device.Tensor {
	x := m.p.Values[v]
	if x.Storage < 0 {
		m.fail("value %d has no place", v)
	}
	if m.memory[x.Storage] == nil {
		m.fail("value %d is read in storage %d, which is not there", v, x.Storage)
	}
	if !slices.Contains(m.contents[x.Storage], v) {
		m.fail("value %d is read in storage %d, which holds %v", v, x.Storage, m.contents[x.Storage])
	}
	if m.shared[x.Storage] {
		m.fail("value %d is read in storage %d, which is the gradient of two passes", v, x.Storage)
	}
	return m.memory[x.Storage].at(x.Spec, x.Offset)
}

// write makes a value; what was in its place is gone.
func (m *machine) write(v int) device.Tensor {
	x := m.p.Values[v]
	if x.Storage < 0 || m.memory[x.Storage] == nil {
		m.fail("value %d is written to storage %d, which is not there", v, x.Storage)
	}
	if k := m.p.Storages[x.Storage].Kind; k != KindInternal {
		m.fail("value %d is written to storage %d, which is of kind %d and not the plan's own", v, x.Storage, k)
	}
	from, to := m.span(v)
	if to > uint64(m.p.Storages[x.Storage].Bytes) {
		m.fail("value %d ends at byte %d of storage %d, which has %d", v, to, x.Storage, m.p.Storages[x.Storage].Bytes)
	}
	m.contents[x.Storage] = slices.DeleteFunc(m.contents[x.Storage], func(w int) bool {
		f, t := m.span(w)
		return f < to && from < t
	})
	m.contents[x.Storage] = append(m.contents[x.Storage], v)
	return m.memory[x.Storage].at(x.Spec, x.Offset)
}

// give puts a value there that comes from outside.
func (m *machine) give(v int, b buffer) {
	k := m.p.Values[v].Storage
	m.memory[k], m.contents[k] = b, append(m.contents[k], v)
}

// pass runs both passes on inputs and seeds, by the names of their nodes, and
// returns the outputs' values.
func (m *machine) pass(given map[string]buffer) (outputs []buffer, err error) {
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(fault)
			if !ok {
				f = fault{fmt.Errorf("step %d: %v", m.at, r)} // a kernel's panic on memory that is not there
			}
			err = f.error
		}
	}()
	n := len(m.p.Storages)
	m.memory, m.contents, m.began = make([]buffer, n), make([][]int, n), make([]bool, n)
	m.deposited, m.shared, m.at = make(map[int]bool), make(map[int]bool), 0
	for v, cv := range m.c.values {
		if cv.maker >= 0 || cv.view >= 0 {
			continue
		}
		if cv.source == KindParameter {
			m.give(v, m.parameter[cv.param])
		} else {
			m.give(v, given[cv.node.Name()])
		}
	}
	for m.at = range m.p.Steps {
		if m.at == m.p.ForwardSteps {
			m.afterForward()
		}
		m.step(&m.p.Steps[m.at])
	}
	m.at = len(m.p.Steps)
	if m.at == m.p.ForwardSteps {
		m.afterForward()
	}
	for i, v := range m.p.OutputValues {
		t := m.read(v)
		b := newBuffer(t.Bytes())
		copy(b.at(t.Spec, 0).RawBytes(), t.RawBytes())
		outputs = append(outputs, b)
		if !m.p.Storages[m.p.Values[v].Storage].Held {
			m.fail("output %d lies in storage %d, which the result does not hold", i, m.p.Values[v].Storage)
		}
	}
	for k, b := range m.memory {
		s := &m.p.Storages[k]
		switch {
		case s.Kind == KindInternal && !m.began[k]:
			m.fail("storage %d never begins", k)
		case s.Kind == KindInternal && b != nil && !s.Held:
			m.fail("storage %d of %d bytes is left", k, s.Bytes)
		case s.Kind == KindInput && s.Saved && b != nil && !s.Held:
			m.fail("an input's storage %d is kept for backward and left", k)
		}
	}
	for i, p := range m.p.Parameters {
		if has := m.c.gradients[p.Model] != nil; has != m.deposited[i] {
			m.fail("parameter %d: has a gradient: %v; was handed one: %v", i, has, m.deposited[i])
		}
	}
	return outputs, nil
}

// afterForward checks that what is there is what is saved or held. An input that
// is neither is the caller's to drop.
func (m *machine) afterForward() {
	for k := range m.p.Storages {
		s := &m.p.Storages[k]
		wanted := s.Saved || s.Held
		if s.Kind == KindInternal && m.memory[k] != nil && !wanted {
			m.fail("storage %d outlives forward and is neither saved nor held", k)
		}
		if s.Kind == KindInternal && s.Saved && m.memory[k] == nil {
			m.fail("storage %d is saved and not there", k)
		}
		if s.Kind == KindInput {
			if !wanted {
				m.memory[k] = nil
			} else if s.Saved {
				m.counts.savedInputs++
			}
		}
	}
}

func (m *machine) step(s *Step) {
	switch {
	case s.Deposit >= 0:
		m.deposit(s)
	case s.Description.View != nil:
		m.read(s.In[0])
		v := m.p.Values[s.Out[0]]
		if v.Storage != m.p.Values[s.In[0]].Storage || len(s.Fresh) > 0 {
			m.fail("a view lies in storage %d, what it is of in %d", v.Storage, m.p.Values[s.In[0]].Storage)
		}
		m.contents[v.Storage] = append(m.contents[v.Storage], s.Out[0])
		m.counts.views++
	default:
		m.compute(s)
	}
	for _, v := range s.In[s.Operands:] {
		if isAutograd(m.c) {
			m.read(v) // what a variable refers to is there, a result of this step too
		}
		m.counts.kept++
	}
	for _, k := range s.Free {
		switch st := &m.p.Storages[k]; {
		case m.memory[k] == nil:
			m.fail("storage %d ends, which is not there", k)
		case st.Kind == KindParameter, st.Kind == KindSeed, st.Held, st.Gradient >= 0:
			m.fail("storage %d ends, which is not the plan's to end", k)
		}
		m.drop(k)
	}
}

// drop ends a storage. Its bytes are spoiled so that whoever still reads them
// computes something else.
func (m *machine) drop(k int) {
	if m.p.Storages[k].Kind == KindInternal {
		for i := range m.memory[k] {
			m.memory[k][i] = math.NaN()
		}
	}
	m.memory[k], m.contents[k] = nil, nil
}

func (m *machine) compute(s *Step) {
	d := s.Description
	c := device.Call{Kernel: d.Kernel, Attributes: d.Attributes, Host: d.Host}
	for _, v := range s.In[:s.Operands] {
		c.In = append(c.In, m.read(v))
	}
	c.Accumulate = s.Accumulate
	for _, k := range s.Fresh {
		if m.began[k] {
			m.fail("storage %d begins twice", k)
		}
		m.began[k] = true
		if s.Gradient >= 0 && m.p.Values[s.Out[0]].Storage == k {
			m.counts.direct++
			if g := m.gradient[m.p.Parameters[s.Gradient].Model]; g != nil {
				m.memory[k], m.shared[k], c.Accumulate = g, true, true
				continue
			}
		}
		m.memory[k] = newBuffer(m.p.Storages[k].Bytes)
	}
	if s.Accumulate {
		m.counts.addedInto++
		k := m.p.Values[s.Out[0]].Storage
		if m.memory[k] == nil || len(m.contents[k]) == 0 {
			m.fail("adds to storage %d, where nothing has been written", k)
		}
	}
	if c.Accumulate && !d.Accumulates {
		m.fail("adds, which the operation cannot")
	}
	m.checkOverlaps(s)
	for _, v := range s.Out {
		c.Out = append(c.Out, m.write(v))
	}
	if err := launch(&c, d, m.keys); err != nil {
		m.fail("%v", err)
	}
	if s.recomputed {
		m.counts.recomputed++
	}
	if d.Validates {
		m.counts.validated++
	}
}

// checkOverlaps checks that a result lies over an operand only where the
// operation allows it, and then wholly.
func (m *machine) checkOverlaps(s *Step) {
	for j, v := range s.Out {
		from, to := m.span(v)
		k := m.p.Values[v].Storage
		over := false
		for i, w := range s.In[:s.Operands] {
			f, t := m.span(w)
			if m.p.Values[w].Storage != k || t <= from || to <= f {
				continue
			}
			if over = true; j > 0 || s.Accumulate || !slices.Contains(s.Description.InPlace, i) || f != from || t != to {
				m.fail("result %d lies over operand %d", j, i)
			}
		}
		if fresh := slices.Contains(s.Fresh, k); !fresh && !over && !(s.Accumulate && j == 0) {
			m.fail("result %d lies in storage %d, which neither begins here nor is an operand's", j, k)
		}
		if over {
			m.counts.takenOver++
		}
	}
}

// deposit hands a gradient over as a session does.
func (m *machine) deposit(s *Step) {
	if m.deposited[s.Deposit] {
		m.fail("the gradient of parameter %d is handed over twice", s.Deposit)
	}
	m.deposited[s.Deposit] = true
	p := m.p.Parameters[s.Deposit].Model
	v := s.In[0]
	k := m.p.Values[v].Storage
	if !slices.Contains(m.contents[k], v) || m.memory[k] == nil {
		m.fail("the gradient of parameter %d is not in storage %d", s.Deposit, k)
	}
	own := m.p.Storages[k].Gradient == s.Deposit
	switch {
	case own && m.shared[k]: // it was added where it stays
		m.memory[k], m.contents[k] = nil, nil
		return
	case own && m.gradient[p] == nil:
		m.counts.handedOver++
		m.gradient[p] = m.memory[k]
		m.memory[k], m.contents[k] = nil, nil
		return
	}
	t := m.read(v)
	g := buffer(slices.Clone(t.Float64s()))
	if old := m.gradient[p]; old != nil {
		m.counts.addedLater++
		for i := range old {
			old[i] += g[i]
		}
	} else {
		m.counts.copied++
		m.gradient[p] = g
	}
	if own {
		m.drop(k)
	}
}

// randomBuffer is values that a net is given.
func randomBuffer(r *rand.Rand, s device.Spec) buffer {
	b := newBuffer(s.Bytes())
	t := b.at(s, 0)
	for i := range s.Elements() {
		switch s.DType {
		case device.Int32:
			t.Int32s()[i] = int32(r.IntN(vocabulary))
		case device.Int64:
			t.Int64s()[i] = int64(r.IntN(vocabulary))
		default:
			t.Float64s()[i] = r.NormFloat64()
		}
	}
	return b
}
