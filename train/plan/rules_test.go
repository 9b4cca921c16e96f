package plan

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
)

// rules is what a plan's steps say of themselves, for the rules that the values
// cannot show: that nothing is kept, taken or added up elsewhere without need.
type rules struct {
	c       *compiler
	p       *Plan
	maker   []int   // by value: the step; -1 for what is given
	viewOf  []int   // by value; -1
	readers [][]int // by value: steps that read it, also by a view of it
	last    []int   // by storage: the last step that reads or writes it
	born    []int   // by storage: the step where it begins; -1 for what is given
	counts  *counts
}

func checkRules(c *compiler, all *counts) error {
	r := &rules{c: c, p: c.plan, counts: all}
	n := len(r.p.Values)
	r.maker, r.viewOf, r.readers = slices.Repeat([]int{-1}, n), slices.Repeat([]int{-1}, n), make([][]int, n)
	r.last, r.born = slices.Repeat([]int{-1}, len(r.p.Storages)), slices.Repeat([]int{-1}, len(r.p.Storages))
	compiled := 0 // the compiler's step that became step i
	for i := range r.p.Steps {
		s := &r.p.Steps[i]
		for _, v := range s.Out {
			r.maker[v] = i
			r.last[r.p.Values[v].Storage] = i
		}
		for _, v := range s.In {
			r.last[r.p.Values[v].Storage] = i
		}
		for _, k := range s.Fresh {
			r.born[k] = i
		}
		if s.Deposit < 0 && s.Description.View != nil {
			r.viewOf[s.Out[0]] = s.In[0]
		}
		for _, v := range s.In {
			for ; v >= 0; v = r.viewOf[v] {
				r.readers[v] = append(r.readers[v], i)
			}
		}
		for c.steps[compiled].dropped {
			compiled++
		}
		if v := c.steps[compiled].into; v >= 0 { // what was there is read
			r.readers[v] = append(r.readers[v], i)
		}
		compiled++
	}
	for _, check := range []func() error{r.ends, r.saved, r.places, r.sums, r.gradients, r.cheap, r.recomputed, r.arguments, r.labels} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (r *rules) fault(i int, format string, a ...any) error {
	s := &r.p.Steps[i]
	kernel := ""
	if s.Description != nil {
		kernel = ", " + s.Description.Kernel
	}
	return fmt.Errorf("step %d of %d (forward %d)%s: %s", i, len(r.p.Steps), r.p.ForwardSteps, kernel, fmt.Sprintf(format, a...))
}

// ends checks that a storage ends with its last reader and, in PyTorch's
// discipline, with the operations of that reader's node.
func (r *rules) ends() error {
	free := slices.Repeat([]int{-1}, len(r.p.Storages))
	for i := range r.p.Steps {
		for _, k := range r.p.Steps[i].Free {
			free[k] = i
		}
	}
	for k, end := range free {
		last, st := r.last[k], r.p.Storages[k]
		if st.Held {
			r.counts.heldLast++
		}
		if end < 0 || end == last && r.p.Steps[last].group == nil {
			continue
		}
		want := last
		recomputed := r.born[k] >= 0 && r.p.Steps[r.born[k]].recomputed
		for group := r.p.Steps[last].group; group != nil && want+1 < len(r.p.Steps) && r.p.Steps[want+1].group == group; want++ {
			if recomputed && r.p.Steps[want+1].Description.Validates {
				break
			}
		}
		if want > last {
			r.counts.grouped++
		}
		if end != want {
			return r.fault(end, "storage %d ends, whose last reader is step %d, so that it should with step %d", k, last, want)
		}
	}
	return nil
}

// saved checks that what forward makes and backward reads is said to be saved,
// and nothing else.
func (r *rules) saved() error {
	for k, st := range r.p.Storages {
		read := false
		for v, x := range r.p.Values {
			if x.Storage == k {
				read = read || slices.ContainsFunc(r.readers[v], func(i int) bool { return i >= r.p.ForwardSteps })
			}
		}
		if st.Kind == KindInternal && r.born[k] >= r.p.ForwardSteps {
			read = false
		}
		if st.Kind == KindInternal || st.Kind == KindInput {
			if st.Saved != read {
				return fmt.Errorf("storage %d of kind %d: saved %v, but read in backward %v", k, st.Kind, st.Saved, read)
			}
		}
	}
	return nil
}

// isSum reports whether a step adds up contributions to a gradient.
func (r *rules) isSum(s *Step, i int) bool {
	return i >= r.p.ForwardSteps && s.Deposit < 0 && s.Description.Kernel == "add" && !s.recomputed
}

// free reports whether nothing but step i needs a storage any more, which is the
// plan's own and as large as a value.
func (r *rules) free(k, i int, out int) bool {
	st := r.p.Storages[k]
	return st.Kind == KindInternal && !st.Held && st.Gradient < 0 && r.last[k] == i && st.Bytes == r.p.Values[out].Spec.Bytes()
}

// places checks that a result takes an operand's place where it may and, in
// PyTorch's discipline, never but where contributions to a gradient are added.
func (r *rules) places() error {
	for i := range r.p.Steps {
		s := &r.p.Steps[i]
		if s.Deposit >= 0 || s.Description.View != nil || s.Accumulate || s.Gradient >= 0 {
			continue
		}
		out := s.Out[0]
		fresh := slices.Contains(s.Fresh, r.p.Values[out].Storage)
		if isAutograd(r.c) {
			if !fresh && !r.isSum(s, i) {
				return r.fault(i, "takes the place of an operand, which no operation of PyTorch's does")
			}
			continue
		}
		if !fresh {
			continue
		}
		for _, j := range s.Description.InPlace {
			k := r.p.Values[s.In[j]].Storage
			other := false
			for l, v := range s.In[:s.Operands] {
				other = other || r.p.Values[v].Storage == k && !slices.Contains(s.Description.InPlace, l)
			}
			if r.free(k, i, out) && r.p.Values[s.In[j]].Offset == 0 && !other {
				return r.fault(i, "takes new memory where it could have that of operand %d, storage %d", j, k)
			}
		}
	}
	return nil
}

// sums checks where contributions to a gradient are added.
func (r *rules) sums() error {
	for i := range r.p.Steps {
		s := &r.p.Steps[i]
		if s.Deposit >= 0 || !r.isSum(s, i) {
			continue
		}
		a, b := s.In[0], s.In[1]
		if isAutograd(r.c) {
			k := r.p.Values[a].Storage
			view := r.viewOf[a] >= 0 || r.maker[a] >= 0 && r.p.Steps[r.maker[a]].Description.HandsOnView
			if fresh := len(s.Fresh) > 0; !fresh {
				r.counts.sumsInPlace++
				if view || r.p.Values[b].Storage == k {
					return r.fault(i, "adds to a tensor that others refer to")
				}
			} else if r.counts.sumsElsewhere++; !view && r.free(k, i, s.Out[0]) && r.p.Values[b].Storage != k {
				return r.fault(i, "adds in new memory to a tensor that nothing else refers to")
			}
			continue
		}
		if r.maker[a] > r.maker[b] {
			a, b = b, a
		}
		if r.maker[a] < r.p.ForwardSteps || r.viewOf[a] >= 0 || r.viewOf[b] >= 0 || a == b {
			continue
		}
		m := r.maker[b]
		maker := &r.p.Steps[m]
		early := !slices.ContainsFunc(r.readers[a], func(u int) bool { return u != i && u >= m })
		if maker.Description.Accumulates && !maker.Accumulate && maker.Out[0] == b && len(r.readers[b]) == 1 && !r.viewed(b) && early && !r.viewed(a) {
			return r.fault(i, "adds what step %d could have added to value %d itself", m, a)
		}
	}
	return nil
}

// viewed reports whether a value has views.
func (r *rules) viewed(v int) bool { return slices.Contains(r.viewOf, v) }

// gradients checks that a gradient is made where it stays when nothing but its
// parameter takes it and its makers can add.
func (r *rules) gradients() error {
	for i := range r.p.Steps {
		s := &r.p.Steps[i]
		if s.Deposit < 0 {
			continue
		}
		v := s.In[0]
		k := r.p.Values[v].Storage
		st := r.p.Storages[k]
		if isAutograd(r.c) {
			continue
		}
		// Who writes and who reads the storage.
		adds, first, read := true, -1, false
		for j := range r.p.Steps {
			x := &r.p.Steps[j]
			for n, w := range x.Out {
				if r.p.Values[w].Storage == k {
					if first < 0 {
						first = j
					}
					adds = adds && n == 0 && x.Deposit < 0 && x.Description.Accumulates && (j == first || x.Accumulate)
				}
			}
			for _, w := range x.In {
				read = read || r.p.Values[w].Storage == k && j != i
			}
		}
		if st.Kind != KindInternal || first < r.p.ForwardSteps {
			continue
		}
		if adds && !read && r.viewOf[v] < 0 && st.Gradient == s.Deposit && r.p.Steps[first].Gradient != s.Deposit {
			return r.fault(first, "does not make the gradient of parameter %d where it stays", s.Deposit)
		}
		if read && r.p.Steps[first].Gradient >= 0 {
			return r.fault(first, "makes a gradient where it stays, which others read")
		}
		if r.last[k] == i && !st.Held && r.viewOf[v] < 0 && !r.viewed(v) && st.Bytes == r.p.Values[v].Spec.Bytes() && len(r.readers[v]) == 1 && st.Gradient != s.Deposit {
			return r.fault(i, "copies the gradient of parameter %d, which nothing else needs", s.Deposit)
		}
	}
	return nil
}

// cheap checks that an operation that is computed again by itself, for the
// memory of its result, needs nothing that backward would not keep without it.
func (r *rules) cheap() error {
	segments := r.c.b.Segments()
	inside := func(v int) bool {
		n := r.c.values[v].node
		return n != nil && slices.ContainsFunc(segments, func(s nn.Segment) bool { return int(n.ID()) >= s.From && int(n.ID()) < s.To })
	}
	for i := range r.p.Steps {
		s := &r.p.Steps[i]
		if !s.recomputed || isAutograd(r.c) || inside(s.Out[0]) {
			continue
		}
		if r.c.options.SaveAll {
			return r.fault(i, "is computed again though everything is to be saved")
		}
		for j, v := range s.In[:s.Operands] {
			given := r.maker[v] < 0
			needed := slices.ContainsFunc(r.readers[v], func(u int) bool { return u >= r.p.ForwardSteps && !r.p.Steps[u].recomputed })
			base := v
			for ; r.viewOf[base] >= 0; base = r.viewOf[base] {
			}
			needed = needed || slices.ContainsFunc(r.readers[base], func(u int) bool { return u >= r.p.ForwardSteps && !r.p.Steps[u].recomputed })
			kept := r.p.Storages[r.p.Values[v].Storage].Held || inside(v) || slices.ContainsFunc(r.readers[v], func(u int) bool { return r.p.Steps[u].recomputed && inside(r.p.Steps[u].Out[0]) })
			if !given && !needed && !kept && r.maker[base] >= 0 {
				return r.fault(i, "is computed again from operand %d, which is kept for nothing else", j)
			}
		}
	}
	return nil
}

// recomputed checks that backward reads what is computed again, not the
// originals, and that nothing is computed again twice or without need.
func (r *rules) recomputed() error {
	again := make(map[result]bool)
	for i := range r.p.Steps {
		s := &r.p.Steps[i]
		if !s.recomputed {
			continue
		}
		x := result{r.c.values[s.Out[0]].node, -1}
		if again[x] {
			return r.fault(i, "is computed again twice")
		}
		again[x] = true
		if slices.Contains(r.c.outputs, x.node) && r.segment(x.node) < 0 {
			return r.fault(i, "is computed again though the result holds it")
		}
	}
	outside := make(map[*gorgonia.Node]bool) // read from without their segment
	for _, n := range r.c.forward {
		for _, in := range op.Operands(n) {
			if r.segment(in) != r.segment(n) {
				outside[in] = true
			}
		}
	}
	for _, n := range append(slices.Clone(r.c.outputs), r.c.options.Differentiate...) {
		outside[n] = true
	}
	for i, s := range r.c.b.Segments() {
		for _, n := range s.Inputs {
			if r.segment(n) != i {
				outside[n] = true // an argument, read or not
			}
		}
	}
	for v, cv := range r.c.values {
		if m := r.maker[v]; m < 0 || m >= r.p.ForwardSteps || r.segment(cv.node) < 0 || outside[cv.node] {
			continue
		}
		for _, u := range r.readers[v] { // also by views of it, which can be kept
			if u >= r.p.ForwardSteps && slices.Contains(r.p.Steps[u].In, v) {
				return r.fault(u, "reads value %d, which is within a checkpointed segment and should not outlive forward", v)
			}
		}
	}
	return nil
}

// segment is the number of the outermost segment that a node is in; -1.
func (r *rules) segment(n *gorgonia.Node) int {
	in := -1
	for i, s := range r.c.b.Segments() {
		if n.Op() != nil && int(n.ID()) >= s.From && int(n.ID()) < s.To {
			in = i
		}
	}
	return in
}

// savedAt reports whether a step of backward reads what a forward pass, the first
// or one that is done again, has saved.
func (r *rules) savedAt(step int) bool {
	s := &r.p.Steps[step]
	return slices.ContainsFunc(s.In[:s.Operands], func(v int) bool {
		m := r.maker[v]
		if m < 0 {
			return r.c.values[v].source != KindSeed
		}
		return m < r.p.ForwardSteps || r.p.Steps[m].recomputed
	})
}

// arguments checks that PyTorch's checkpoint refers to a block's arguments until
// the last node of the block's gradient that saved something.
func (r *rules) arguments() error {
	if !isAutograd(r.c) {
		return nil
	}
	for i, seg := range r.c.b.Segments() {
		end := -1
		for j := range r.p.Steps {
			if g := r.p.Steps[j].group; g != nil && r.segment(g) == i && r.savedAt(j) {
				end = j
			}
		}
		for v, cv := range r.c.values {
			if cv.node == nil || !slices.Contains(seg.Inputs, cv.node) || r.maker[v] >= r.p.ForwardSteps || cv.maker >= 0 && r.c.steps[cv.maker].out[0] != v {
				continue
			}
			if k := r.p.Values[v].Storage; end >= 0 && r.last[k] < end {
				return r.fault(end, "value %d, an argument of the block whose gradient this ends, is not referred to any more", v)
			}
		}
	}
	return nil
}

// labels checks the categories of the plan's own memory.
func (r *rules) labels() error {
	for k, st := range r.p.Storages {
		if st.Kind != KindInternal {
			continue
		}
		want := instrument.Temporary
		switch {
		case st.Gradient >= 0:
			want = instrument.Gradient
		case st.Saved || st.Held:
			want = instrument.Activation
		case r.p.Steps[r.born[k]].recomputed:
			continue // an activation if backward proper reads it
		}
		if st.Label.Category != want {
			return fmt.Errorf("storage %d is labelled %v, want %v", k, st.Label.Category, want)
		}
	}
	return nil
}

// isAutograd reports whether a plan follows PyTorch's discipline.
func isAutograd(c *compiler) bool {
	_, is := c.rules.(*autograd)
	return is
}
