package session

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/train/plan"
)

// Result is what a forward pass leaves: its outputs, and what it saved for
// backward.
type Result struct {
	s       *Session
	plan    *plan.Plan
	storage []*memory // by storage; nil when not in memory
	pass    int64
	ended   bool // backward has run
}

// Output is an output of the plan, valid until the result is released.
func (r *Result) Output(i int) device.Tensor {
	v := r.plan.Values[r.plan.OutputValues[i]]
	t := device.Tensor{Spec: v.Spec, Addr: v.Offset}
	if st := r.plan.Storages[v.Storage]; st.Kind == plan.KindParameter {
		// The output is a view of a weight, which is the session's.
		t.Addr += r.s.byPointer[r.plan.Parameters[st.Parameter].Model].Value.Addr
	} else {
		t.Addr += r.storage[v.Storage].block.Addr()
	}
	return t
}

// Take makes an output a value of its own, which outlives the result. The output
// fills its memory, and is no weight and no other output's.
func (r *Result) Take(i int) *Value {
	v := r.plan.Values[r.plan.OutputValues[i]]
	m := r.storage[v.Storage]
	r.storage[v.Storage] = nil
	return &Value{s: r.s, m: m, Tensor: device.Tensor{Spec: v.Spec, Addr: m.block.Addr()}}
}

// Release drops what was saved for backward, then the outputs.
func (r *Result) Release() {
	if r == nil {
		return
	}
	for _, outputs := range []bool{false, true} {
		for k, m := range r.storage {
			if m != nil && r.plan.Storages[k].Held == outputs {
				r.s.release(m)
				r.storage[k] = nil
			}
		}
	}
	r.ended = true
}

// Forward runs a plan's forward pass. Inputs are given in the order of the
// plan's Inputs; the result refers to those it saves for backward, and takes
// those that the plan owns, which are released then.
func (s *Session) Forward(p *plan.Plan, inputs ...*Value) (*Result, error) {
	s.calledFrom()
	return s.forward(p, inputs)
}

func (s *Session) forward(p *plan.Plan, inputs []*Value) (*Result, error) {
	if err := s.check(p); err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	name := func(i int) string { return "input " + p.InputNames[i] }
	if err := s.checkValues(p, p.InputValues, inputs, name, func(i int) int { return p.OpenInputs[i] }); err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	if p.Draws {
		s.passes++
	}
	r := &Result{s: s, plan: p, storage: make([]*memory, len(p.Storages)), pass: s.passes}
	x := &execution{s: s, p: p, r: r}
	x.begin()
	for i, v := range p.InputValues {
		st := p.Values[v].Storage
		x.addr[st] = inputs[i].Addr
		if p.OpenInputs[i] >= 0 {
			if x.given == nil {
				x.given = make([]device.Spec, len(p.Values))
			}
			x.given[v] = inputs[i].Spec
		}
		switch {
		case p.OwnInputs[i]:
			r.storage[st], inputs[i].m = inputs[i].m, nil
		case p.Storages[st].Saved || p.Storages[st].Held:
			inputs[i].m.refs++
			r.storage[st] = inputs[i].m
		}
	}
	for i := range p.Steps[:p.ForwardSteps] {
		if err := x.run(i); err != nil {
			r.Release()
			return nil, fmt.Errorf("forward: %w", err)
		}
	}
	return r, nil
}

// Backward runs a plan's backward pass from the gradients given for its
// differentiated outputs, and leaves the parameters' gradients, added to those
// that are there. What the forward pass saved goes as it is used. What is
// refused before anything runs leaves the result as it was.
func (s *Session) Backward(r *Result, seeds ...*Value) error {
	s.calledFrom()
	return s.backward(r, seeds)
}

func (s *Session) backward(r *Result, seeds []*Value) error {
	switch {
	case r == nil:
		return errors.New("backward: there is no result")
	case r.s != s:
		return errors.New("backward: the result is another session's")
	case r.plan.ForwardSteps == len(r.plan.Steps):
		return errors.New("backward: the plan has no backward pass; name what to differentiate when compiling it")
	case r.ended:
		return errReleased
	}
	p := r.plan
	if err := s.check(p); err != nil {
		return fmt.Errorf("backward: %w", err)
	}
	name := func(i int) string { return fmt.Sprintf("gradient %d", i) }
	if err := s.checkValues(p, p.SeedValues, seeds, name, func(int) int { return -1 }); err != nil {
		return fmt.Errorf("backward: %w", err)
	}
	r.ended = true
	x := &execution{s: s, p: p, r: r, backward: true}
	x.begin()
	for i, v := range p.SeedValues {
		x.addr[p.Values[v].Storage] = seeds[i].Addr
	}
	for i := p.ForwardSteps; i < len(p.Steps); i++ {
		if err := x.run(i); err != nil {
			r.Release()
			return fmt.Errorf("backward: %w", err)
		}
	}
	return nil
}

// execution is one pass over steps of a plan.
type execution struct {
	s    *Session
	p    *plan.Plan
	r    *Result
	addr []uint64 // by storage
	// given are the shapes of inputs that this run decides, by value; nil
	// without any.
	given []device.Spec
	call  device.Call
	// backward says that this is the backward pass, which PyTorch runs in a
	// thread of its own.
	backward bool
}

// begin finds the addresses of what is in memory already.
func (x *execution) begin() {
	x.addr = make([]uint64, len(x.p.Storages))
	for _, pp := range x.p.Parameters {
		x.addr[pp.Storage] = x.s.byPointer[pp.Model].Value.Addr
	}
	for k, m := range x.r.storage {
		if m != nil {
			x.addr[k] = m.block.Addr()
		}
	}
}

func (x *execution) tensor(v int) device.Tensor {
	pv := x.p.Values[v]
	if x.given != nil && x.given[v].Shape != nil {
		pv.Spec = x.given[v]
	}
	return device.Tensor{Spec: pv.Spec, Addr: x.addr[pv.Storage] + pv.Offset}
}

// run does one step: memory for its results, the call, and the end of what
// nothing reads afterwards.
func (x *execution) run(i int) error {
	if f := x.s.interrupted; f != nil {
		if err := f(); err != nil {
			return err
		}
	}
	st := &x.p.Steps[i]
	if st.Deposit >= 0 {
		if err := x.deposit(st); err != nil {
			return err
		}
		x.end(st)
		return nil
	}
	if st.Description.View == nil {
		if err := x.compute(st); err != nil {
			if st.Module != "" {
				return fmt.Errorf("%s: %w", st.Module, err)
			}
			return err
		}
	}
	if len(x.s.hooks) > 0 {
		x.callHooks(i)
	}
	x.end(st)
	return nil
}

func (x *execution) compute(st *plan.Step) error {
	accumulate := st.Accumulate
	if st.Description.Memory != nil {
		if err := x.takeMemory(st); err != nil {
			return err
		}
	}
	for _, k := range st.Fresh {
		if st.Description.Memory != nil {
			break
		}
		sto := &x.p.Storages[k]
		if st.Gradient >= 0 && x.p.Values[st.Out[0]].Storage == k {
			// The gradient of an earlier micro-batch is there: add to it.
			if q := x.s.byPointer[x.p.Parameters[st.Gradient].Model]; q.grad != nil {
				x.addr[k] = q.grad.block.Addr()
				accumulate = true
				continue
			}
		}
		m, err := x.s.allocate(sto.Bytes, x.s.tag(sto.Label), sto.Label)
		if err != nil {
			return err
		}
		x.r.storage[k] = m
		x.addr[k] = m.block.Addr()
	}
	c := &x.call
	c.Kernel, c.Host, c.Accumulate = st.Description.Kernel, st.Description.Host, accumulate
	c.Attributes = st.Description.Attributes
	c.In, c.Out = c.In[:0], c.Out[:0]
	for _, v := range st.In[:st.Operands] {
		c.In = append(c.In, x.tensor(v))
	}
	for _, v := range st.Out {
		c.Out = append(c.Out, x.tensor(v))
	}
	c.Seed, c.Pass = x.s.seed, x.r.pass
	var scratch *memory
	c.Scratch = device.Tensor{}
	if n := st.Description.ScratchBytes; n > 0 {
		label := instrument.Label{Category: instrument.Temporary, Module: st.Module, Op: st.Description.Kernel + " scratch"}
		m, err := x.s.allocate(n, x.s.tag(label), label)
		if err != nil {
			return err
		}
		scratch = m
		c.Scratch = device.Tensor{Spec: device.Spec{DType: device.Uint8, Shape: []int{int(n)}}, Addr: m.block.Addr()}
	}
	if st.Description.MatrixProduct {
		if err := x.s.workspace.take(x.s); err != nil {
			return err
		}
		if err := x.s.libraries.take(x.s, x.backward, st.Description.Kernel); err != nil {
			return err
		}
	}
	err := x.s.dev.Run(c)
	x.s.release(scratch)
	return err
}

// takeMemory takes a step's memory in the order its operation gives.
func (x *execution) takeMemory(st *plan.Step) error {
	var temporaries []*memory
	label := instrument.Label{Category: instrument.Temporary, Module: st.Module, Op: st.Description.Kernel}
	defer func() {
		for _, m := range temporaries {
			x.s.release(m)
		}
	}()
	for _, a := range st.Description.Memory {
		switch a.Kind {
		case op.TakeResult:
			k := x.p.Values[st.Out[a.N]].Storage
			if !slices.Contains(st.Fresh, k) {
				continue
			}
			sto := &x.p.Storages[k]
			m, err := x.s.allocate(sto.Bytes, x.s.tag(sto.Label), sto.Label)
			if err != nil {
				return err
			}
			x.r.storage[k], x.addr[k] = m, m.block.Addr()
		case op.TakeTemporary:
			m, err := x.s.allocate(a.Bytes, x.s.tag(label), label)
			if err != nil {
				return err
			}
			temporaries = append(temporaries, m)
		case op.DropTemporary:
			x.s.release(temporaries[a.N])
			temporaries[a.N] = nil
		}
	}
	return nil
}

// deposit hands a finished gradient over to its parameter.
func (x *execution) deposit(st *plan.Step) error {
	q := x.s.byPointer[x.p.Parameters[st.Deposit].Model]
	k := x.p.Values[st.In[0]].Storage
	own := x.p.Storages[k].Gradient == st.Deposit
	switch {
	case own && x.r.storage[k] == nil:
		return nil // it was added to the gradient where that stays
	case own && q.grad == nil:
		q.grad, x.r.storage[k] = x.r.storage[k], nil
		return nil
	}
	g := x.tensor(st.In[0])
	d := op.CopyDescription(g.Spec)
	in := []device.Tensor{g}
	if q.grad != nil {
		d = op.AddDescription(g.Spec)
		in = append(in, device.Tensor{Spec: g.Spec, Addr: q.grad.block.Addr()})
	} else {
		label := instrument.Label{Category: instrument.Gradient, Module: moduleOf(q.Name), Op: leafOf(q.Name)}
		m, err := x.s.allocate(g.Bytes(), x.s.tag(label), label)
		if err != nil {
			return err
		}
		q.grad = m
	}
	out := device.Tensor{Spec: g.Spec, Addr: q.grad.block.Addr()}
	err := x.s.dev.Run(&device.Call{Kernel: d.Kernel, In: in, Out: []device.Tensor{out}, Host: d.Host})
	if own {
		x.s.release(x.r.storage[k])
		x.r.storage[k] = nil
	}
	return err
}

// end drops what nothing reads after a step.
func (x *execution) end(st *plan.Step) {
	for _, k := range st.Free {
		x.s.release(x.r.storage[k])
		x.r.storage[k] = nil
	}
}

func (x *execution) callHooks(i int) {
	for _, j := range x.p.CallsAfter[i] {
		call := x.p.ModuleCalls[j]
		values := make([]device.Tensor, 0, len(call.Output.Nodes))
		for _, v := range x.p.CallValues[j] {
			values = append(values, x.tensor(v))
		}
		for _, f := range x.s.hooks {
			f(call, values)
		}
	}
}
