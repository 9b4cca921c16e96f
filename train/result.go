package train

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// Result is what a forward pass leaves: its outputs, and what it saved for
// backward.
type Result struct {
	s       *Session
	plan    *Plan
	storage []*memory // by storage; nil when not in memory
	pass    int64
	ended   bool // backward has run
}

// Output is an output of the plan, valid until the result is released.
func (r *Result) Output(i int) device.Tensor {
	v := r.plan.values[r.plan.outputs[i]]
	t := device.Tensor{Spec: v.spec, Addr: v.offset}
	if st := r.plan.storages[v.storage]; st.kind == parameter {
		// The output is a view of a weight, which is the session's.
		t.Addr += r.s.byPointer[r.plan.params[st.param].p].Value.Addr
	} else {
		t.Addr += r.storage[v.storage].block.Addr()
	}
	return t
}

// Release drops what was saved for backward, then the outputs.
func (r *Result) Release() {
	if r == nil {
		return
	}
	for _, outputs := range []bool{false, true} {
		for k, m := range r.storage {
			if m != nil && r.plan.storages[k].held == outputs {
				r.s.release(m)
				r.storage[k] = nil
			}
		}
	}
	r.ended = true
}

// Forward runs a plan's forward pass. Inputs are given in the order of the
// plan's Inputs; the result refers to those it saves for backward.
func (s *Session) Forward(p *Plan, inputs ...*Value) (*Result, error) {
	s.calledFrom()
	if len(inputs) != len(p.inputs) {
		return nil, fmt.Errorf("forward: %d inputs given, the plan takes %d: %v", len(inputs), len(p.inputs), p.names)
	}
	s.passes++
	r := &Result{s: s, plan: p, storage: make([]*memory, len(p.storages)), pass: s.passes}
	x := &execution{s: s, p: p, r: r}
	x.begin()
	for i, v := range p.inputs {
		got, want := inputs[i].Spec, p.values[v].spec
		if got.String() != want.String() {
			r.Release()
			return nil, fmt.Errorf("forward: input %s is %v, the plan takes %v", p.names[i], got, want)
		}
		if inputs[i].m == nil {
			r.Release()
			return nil, fmt.Errorf("forward: input %s was released", p.names[i])
		}
		st := p.values[v].storage
		x.addr[st] = inputs[i].Addr
		if p.storages[st].saved || p.storages[st].held {
			inputs[i].m.refs++
			r.storage[st] = inputs[i].m
		}
	}
	for i := range p.steps[:p.forward] {
		if err := x.run(i); err != nil {
			r.Release()
			return nil, fmt.Errorf("forward: %w", err)
		}
	}
	return r, nil
}

// Backward runs a plan's backward pass from the gradients given for its
// differentiated outputs, and leaves the parameters' gradients, added to those
// that are there. What the forward pass saved goes as it is used.
func (s *Session) Backward(r *Result, seeds ...*Value) error {
	s.calledFrom()
	p := r.plan
	if r.ended || p.forward == len(p.steps) {
		return errReleased
	}
	if len(seeds) != len(p.seeds) {
		return fmt.Errorf("backward: %d gradients given for %d outputs", len(seeds), len(p.seeds))
	}
	r.ended = true
	x := &execution{s: s, p: p, r: r, backward: true}
	x.begin()
	for i, v := range p.seeds {
		if got, want := seeds[i].Spec, p.values[v].spec; got.String() != want.String() {
			return fmt.Errorf("backward: gradient %d is %v, the output is %v", i, got, want)
		}
		x.addr[p.values[v].storage] = seeds[i].Addr
	}
	for i := p.forward; i < len(p.steps); i++ {
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
	p    *Plan
	r    *Result
	addr []uint64 // by storage
	call device.Call
	// backward says that this is the backward pass, which PyTorch runs in a
	// thread of its own.
	backward bool
}

// begin finds the addresses of what is in memory already.
func (x *execution) begin() {
	x.addr = make([]uint64, len(x.p.storages))
	for _, pp := range x.p.params {
		if q := x.s.byPointer[pp.p]; q != nil {
			x.addr[pp.storage] = q.Value.Addr
		}
	}
	for k, m := range x.r.storage {
		if m != nil {
			x.addr[k] = m.block.Addr()
		}
	}
}

func (x *execution) tensor(v int) device.Tensor {
	pv := x.p.values[v]
	return device.Tensor{Spec: pv.spec, Addr: x.addr[pv.storage] + pv.offset}
}

// run does one step: memory for its results, the call, and the end of what
// nothing reads afterwards.
func (x *execution) run(i int) error {
	st := &x.p.steps[i]
	if st.deposit >= 0 {
		if err := x.deposit(st); err != nil {
			return err
		}
		x.end(st)
		return nil
	}
	if st.d.View == nil {
		if err := x.compute(st); err != nil {
			if st.module != "" {
				return fmt.Errorf("%s: %w", st.module, err)
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

func (x *execution) compute(st *step) error {
	accumulate := st.accumulate
	if st.d.Memory != nil {
		if err := x.takeMemory(st); err != nil {
			return err
		}
	}
	for _, k := range st.fresh {
		if st.d.Memory != nil {
			break
		}
		sto := &x.p.storages[k]
		if st.gradient >= 0 && x.p.values[st.out[0]].storage == k {
			// The gradient of an earlier micro-batch is there: add to it.
			if q := x.s.byPointer[x.p.params[st.gradient].p]; q.grad != nil {
				x.addr[k] = q.grad.block.Addr()
				accumulate = true
				continue
			}
		}
		m, err := x.s.allocate(sto.bytes, x.s.tag(sto.label), sto.label)
		if err != nil {
			return err
		}
		x.r.storage[k] = m
		x.addr[k] = m.block.Addr()
	}
	c := &x.call
	c.Kernel, c.Floats, c.Host, c.Accumulate = st.d.Kernel, st.d.Floats, st.d.Host, accumulate
	c.In, c.Out, c.Ints = c.In[:0], c.Out[:0], append(c.Ints[:0], st.d.Ints...)
	for _, v := range st.in[:st.operands] {
		c.In = append(c.In, x.tensor(v))
	}
	for _, v := range st.out {
		c.Out = append(c.Out, x.tensor(v))
	}
	if st.d.Random {
		n := len(c.Ints)
		c.Ints[n-2], c.Ints[n-1] = int64(x.s.seed), x.r.pass
	}
	var scratch *memory
	c.Scratch = device.Tensor{}
	if n := st.d.ScratchBytes; n > 0 {
		label := instrument.Label{Category: instrument.Temporary, Module: st.module, Op: st.d.Kernel + " scratch"}
		m, err := x.s.allocate(n, x.s.tag(label), label)
		if err != nil {
			return err
		}
		scratch = m
		c.Scratch = device.Tensor{Spec: device.Spec{DType: device.Uint8, Shape: []int{int(n)}}, Addr: m.block.Addr()}
	}
	if st.d.MatrixProduct {
		if err := x.s.workspace.take(x.s); err != nil {
			return err
		}
		if err := x.s.libraries.take(x.s, x.backward, st.d.Kernel); err != nil {
			return err
		}
	}
	err := x.s.dev.Run(c)
	x.s.release(scratch)
	return err
}

// deposit hands a finished gradient over to its parameter.
func (x *execution) deposit(st *step) error {
	q := x.s.byPointer[x.p.params[st.deposit].p]
	k := x.p.values[st.in[0]].storage
	own := x.p.storages[k].gradient == st.deposit
	switch {
	case own && x.r.storage[k] == nil:
		return nil // it was added to the gradient where that stays
	case own && q.grad == nil:
		q.grad, x.r.storage[k] = x.r.storage[k], nil
		return nil
	}
	g := x.tensor(st.in[0])
	g.Spec = q.Value.Spec
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
func (x *execution) end(st *step) {
	for _, k := range st.free {
		x.s.release(x.r.storage[k])
		x.r.storage[k] = nil
	}
}

func (x *execution) callHooks(i int) {
	for _, j := range x.p.callAt[i] {
		call := x.p.calls[j]
		values := make([]device.Tensor, 0, len(call.Output.Nodes))
		for _, v := range x.p.callValues[j] {
			values = append(values, x.tensor(v))
		}
		for _, f := range x.s.hooks {
			f(call, values)
		}
	}
}
