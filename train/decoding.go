package train

import (
	"encoding/binary"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/train/plan"
	"github.com/tidemark-lab/tidemark/train/session"
)

// Decoding computes a language model on a session one token after the other,
// for one or several rows. It keeps the keys and values of the tokens that it
// has seen, in memory of category Cache: two tensors a layer.
type Decoding struct {
	s     *session.Session
	model nn.Module
	build nn.Options
	o     DecodingOptions

	prefills map[[2]int]*decodingPlan // by rows and tokens, of prompts of one length
	decode   *decodingPlan
	caches   []*session.Value
	rounded  map[*nn.Parameter]*session.Value // weights in bfloat16, in mixed precision
	ids, at  *session.Value                   // of a step
	zeros    *session.Value
	kept     []int32       // tokens of each row
	replay   device.Replay // of steps that repeat; nil where the device has none
	bytes    []byte
}

// DecodingOptions say how much is kept.
type DecodingOptions struct {
	// Cache is CacheDynamic, CacheStatic or CacheSliding.
	Cache CacheKind
	// Tokens is how many tokens of a row a static cache has room for, or how
	// many of the latest a sliding one keeps.
	Tokens int
	// Choose, where it is above 0, has the device choose the likeliest of the
	// first Choose tokens, so that the logits need not be read.
	Choose int
}

// Next is what follows the tokens so far, by row; empty where nothing is
// computed.
type Next struct {
	Logits []float64 // rows one after the other; empty with DecodingOptions.Choose
	Tokens []int32   // the likeliest, with DecodingOptions.Choose
}

// decodingPlan is a plan with what its inputs after the positions and the tokens
// are: weights in bfloat16 or, where nil, caches in turn.
type decodingPlan struct {
	*plan.Plan
	weights []*nn.Parameter
	names   []string
}

// NewDecoding prepares the decoding of a model that the session has
// materialized, built with the options.
func NewDecoding(s *session.Session, model nn.Module, build nn.Options, o DecodingOptions) (*Decoding, error) {
	switch o.Cache {
	case CacheDynamic:
	case CacheStatic, CacheSliding:
		if o.Tokens < 1 {
			return nil, fmt.Errorf("a %s cache of %d tokens: it needs room for at least one", o.Cache, o.Tokens)
		}
	default:
		return nil, fmt.Errorf("cache %q keeps nothing: expected %s, %s or %s", o.Cache, CacheDynamic, CacheStatic, CacheSliding)
	}
	d := &Decoding{s: s, model: model, build: build, o: o, prefills: map[[2]int]*decodingPlan{}, rounded: map[*nn.Parameter]*session.Value{}}
	if r, ok := s.Device().(device.Replayer); ok {
		d.replay = r.NewReplay()
	}
	return d, nil
}

// Close gives the memory back. The decoding can begin again, with weights that
// have changed since.
func (d *Decoding) Close() {
	d.forget()
	for _, v := range d.rounded {
		v.Release()
	}
	clear(d.rounded)
}

// forget drops what is kept of the rows.
func (d *Decoding) forget() {
	for _, v := range append(d.caches, d.ids, d.at, d.zeros) {
		v.Release()
	}
	d.caches, d.ids, d.at, d.zeros, d.decode, d.kept = nil, nil, nil, nil, nil, nil
	if d.replay != nil {
		d.replay.Close()
	}
}

// CacheBytes is the size of what is kept.
func (d *Decoding) CacheBytes() int64 {
	var n int64
	for _, v := range d.caches {
		n += v.Bytes()
	}
	return n
}

// Prefill begins with prompts of at least one token each and gives what follows
// each.
//
// Of prompts of several lengths, a sliding cache takes so much at once as it has
// room for, and the rest token by token.
func (d *Decoding) Prefill(prompts [][]int32) (Next, error) {
	d.forget()
	lengths, most, ragged := make([]int, len(prompts)), 0, false
	for i, p := range prompts {
		if len(p) == 0 {
			return Next{}, fmt.Errorf("prompt %d is empty: give at least one token to begin with", i)
		}
		n := len(p)
		if d.o.Cache == CacheSliding && len(p) != len(prompts[0]) {
			ragged = true
		}
		if d.o.Cache == CacheStatic && n > d.o.Tokens {
			return Next{}, fmt.Errorf("prompt %d has %d tokens, the static cache has room for %d", i, n, d.o.Tokens)
		}
		lengths[i], most = n, max(most, n)
	}
	if ragged { // what pads a row must not go round to where its tokens are
		most = 0
		for i, n := range lengths {
			lengths[i] = min(n, d.o.Tokens)
			most = max(most, lengths[i])
		}
	}
	out, err := d.first(prompts, lengths, most)
	if err != nil {
		return Next{}, err
	}
	for {
		tokens, waiting := make([]int32, len(prompts)), make([]bool, len(prompts))
		left := false
		for i, p := range prompts {
			if n := int(d.kept[i]); n < len(p) {
				tokens[i], left = p[n], true
			} else {
				waiting[i] = true
			}
		}
		if !left {
			return out, nil
		}
		next, err := d.step(tokens, waiting)
		if err != nil {
			return Next{}, err
		}
		for i, w := range waiting {
			if n := len(next.Logits) / len(prompts); !w {
				copy(out.Logits[i*n:(i+1)*n], next.Logits[i*n:])
			}
			if !w && next.Tokens != nil {
				out.Tokens[i] = next.Tokens[i]
			}
		}
	}
}

// first computes the first lengths[i] tokens of each prompt.
func (d *Decoding) first(prompts [][]int32, lengths []int, tokens int) (Next, error) {
	p, err := d.prefillPlan(lengths, tokens)
	if err != nil {
		return Next{}, err
	}
	rows := len(prompts)
	capacity := tokens
	if d.o.Cache != CacheDynamic {
		capacity = d.o.Tokens
	}
	if err := d.allocate(p, rows, capacity); err != nil {
		return Next{}, err
	}
	padded := make([]int32, 0, rows*tokens)
	for i, prompt := range prompts {
		padded = append(padded, prompt[:lengths[i]]...)
		padded = append(padded, make([]int32, tokens-lengths[i])...)
	}
	batch, err := d.s.Input("batch", device.Spec{DType: device.Int32, Shape: []int{rows, tokens}}, d.encode(padded))
	if err != nil {
		return Next{}, err
	}
	defer batch.Release()
	out, err := d.forward(p, batch, d.zeros)
	if err != nil {
		return Next{}, err
	}
	d.kept = make([]int32, rows)
	for i, n := range lengths {
		d.kept[i] = int32(n)
	}
	return out, nil
}

// Step takes one more token of each row and gives what follows.
func (d *Decoding) Step(tokens []int32) (Next, error) {
	if len(tokens) != len(d.kept) {
		return Next{}, fmt.Errorf("%d tokens for %d rows", len(tokens), len(d.kept))
	}
	return d.step(tokens, make([]bool, len(tokens)))
}

// step is Step where rows that wait keep nothing of their token.
func (d *Decoding) step(tokens []int32, waiting []bool) (Next, error) {
	if err := d.makeRoom(); err != nil {
		return Next{}, err
	}
	if d.decode == nil {
		var err error
		if d.decode, err = d.decodePlan(len(tokens)); err != nil {
			return Next{}, err
		}
	}
	if err := d.ids.Upload(d.encode(tokens)); err != nil {
		return Next{}, err
	}
	if err := d.at.Upload(d.encode(d.kept)); err != nil {
		return Next{}, err
	}
	out, err := d.forward(d.decode, d.ids, d.at)
	if err != nil {
		return Next{}, err
	}
	for i := range d.kept {
		if !waiting[i] {
			d.kept[i]++
		}
	}
	return out, nil
}

// makeRoom sees to it that one more token of each row fits.
func (d *Decoding) makeRoom() error {
	need := int(slices.Max(d.kept)) + 1
	capacity := d.caches[0].Shape[1]
	switch {
	case need <= capacity || d.o.Cache == CacheSliding:
		return nil
	case d.o.Cache == CacheStatic:
		return fmt.Errorf("the static cache has room for %d tokens, and they are there", capacity)
	}
	for i, old := range d.caches {
		grown, err := d.allocateCache(i, device.Spec{DType: old.DType, Shape: []int{old.Shape[0], need, old.Shape[2]}})
		if err != nil {
			return err
		}
		// Old and new exist together, as in PyTorch, which concatenates.
		c := op.CacheCopyDescription(old.Spec, grown.Spec)
		if err := d.s.Device().Run(&device.Call{Kernel: c.Kernel, Attributes: c.Attributes, Host: c.Host,
			In: []device.Tensor{old.Tensor, grown.Tensor, d.zeros.Tensor}, Out: []device.Tensor{old.Tensor}}); err != nil {
			grown.Release()
			return err
		}
		old.Release()
		d.caches[i] = grown
	}
	return nil
}

// forward runs a plan and reads what it gives.
func (d *Decoding) forward(p *decodingPlan, ids, at *session.Value) (next Next, err error) {
	in := []*session.Value{at, ids}
	caches := d.caches
	for i, w := range p.weights {
		if w == nil {
			in, caches = append(in, caches[0]), caches[1:]
			continue
		}
		v, err := d.roundedWeight(w, p.names[i])
		if err != nil {
			return next, err
		}
		in = append(in, v)
	}
	var again device.Replay
	if p == d.decode && d.o.Cache != CacheDynamic { // which takes other memory in each step
		again = d.replay
	}
	var r *session.Result
	err = device.Through(again, func() (err error) {
		r, err = d.s.Forward(p.Plan, in...)
		return err
	})
	if err != nil {
		if r != nil {
			r.Release()
		}
		return next, err
	}
	defer r.Release()
	switch {
	case !d.s.Device().Info().Kind.Computes:
	case d.o.Choose > 0:
		t := r.Output(0)
		d.bytes = slices.Grow(d.bytes[:0], int(t.Bytes()))[:t.Bytes()]
		if err = d.s.Device().Download(d.bytes, t); err == nil {
			for i := range t.Elements() {
				next.Tokens = append(next.Tokens, int32(binary.LittleEndian.Uint32(d.bytes[4*i:])))
			}
		}
	default:
		next.Logits, err = d.s.Floats(r.Output(0))
	}
	return next, err
}

// roundedWeight is a weight in bfloat16. It is made once: weights do not change
// while generating.
func (d *Decoding) roundedWeight(p *nn.Parameter, name string) (*session.Value, error) {
	if v := d.rounded[p]; v != nil {
		return v, nil
	}
	w := d.s.Parameter(p)
	if w == nil {
		return nil, fmt.Errorf("parameter %s: the session has none; materialize the model first", name)
	}
	v, err := d.s.Allocate(device.Spec{DType: device.BFloat16, Shape: p.Shape},
		instrument.Label{Category: instrument.Parameter, Module: name, Op: "bfloat16"})
	if err != nil {
		return nil, err
	}
	c := op.CastDescription(w.Value.Spec, v.Spec)
	if err := d.s.Device().Run(&device.Call{Kernel: c.Kernel, Host: c.Host,
		In: []device.Tensor{w.Value}, Out: []device.Tensor{v.Tensor}}); err != nil {
		v.Release()
		return nil, err
	}
	d.rounded[p] = v
	return v, nil
}

// allocate makes the caches that a plan takes, with a capacity of tokens, and
// the inputs of its steps.
func (d *Decoding) allocate(p *decodingPlan, rows, capacity int) (err error) {
	for i, v := range p.InputValues[2:] { // at and ids come first
		if p.weights[i] != nil {
			continue
		}
		spec := p.Values[v].Spec
		spec.Shape = []int{spec.Shape[0], capacity, spec.Shape[2]}
		c, err := d.allocateCache(len(d.caches), spec)
		if err != nil {
			return err
		}
		d.caches = append(d.caches, c)
	}
	if len(d.caches) == 0 {
		return fmt.Errorf("a model of type %s keeps no keys and values: its attention is not built to (nn.Builder.Attention); generate without a cache", d.model.Type())
	}
	if d.ids, err = d.s.Input("batch", device.Spec{DType: device.Int32, Shape: []int{1, rows}}, nil); err != nil {
		return err
	}
	at := device.Spec{DType: device.Int32, Shape: []int{rows}}
	if d.at, err = d.s.Input("at", at, nil); err != nil {
		return err
	}
	d.zeros, err = d.s.Input("at", at, make([]byte, at.Bytes()))
	return err
}

func (d *Decoding) allocateCache(i int, spec device.Spec) (*session.Value, error) {
	label := instrument.Label{Category: instrument.Cache, Module: fmt.Sprintf("cache.%d", i/2), Op: "keys"}
	if i%2 == 1 {
		label.Op = "values"
	}
	return d.s.Allocate(spec, label)
}

// prefillPlan plans the forward pass on prompts.
func (d *Decoding) prefillPlan(lengths []int, tokens int) (*decodingPlan, error) {
	key := [2]int{len(lengths), tokens}
	equal := slices.Min(lengths) == tokens
	if p := d.prefills[key]; p != nil && equal {
		return p, nil
	}
	b := nn.NewBuilder(d.model, d.build)
	capacity := tokens
	if d.o.Cache == CacheSliding {
		capacity = d.o.Tokens
	}
	b.Prefill(lengths, capacity)
	p, err := d.compile(b, len(lengths), tokens)
	if err == nil && equal {
		d.prefills[key] = p
	}
	return p, err
}

// decodePlan plans the forward pass on one token a row. It serves every
// capacity.
func (d *Decoding) decodePlan(rows int) (*decodingPlan, error) {
	b := nn.NewBuilder(d.model, d.build)
	b.Decode(rows, d.caches[0].Shape[1])
	return d.compile(b, 1, rows)
}

func (d *Decoding) compile(b *nn.Builder, rows, tokens int) (*decodingPlan, error) {
	out, err := b.Run(b.Input("batch", device.Spec{DType: device.Int32, Shape: []int{rows, tokens}}))
	if err != nil {
		return nil, err
	}
	next := out.One()
	if d.o.Choose > 0 {
		if next, err = op.ArgMax(next, d.o.Choose); err != nil {
			return nil, err
		}
	}
	p := &decodingPlan{}
	for _, in := range b.Inputs()[2:] {
		w, name := b.RoundedWeight(in)
		p.weights, p.names = append(p.weights, w), append(p.names, name)
	}
	p.Plan, err = plan.Compile(b, []*gorgonia.Node{next}, plan.Options{})
	return p, err
}

// encode gives int32s as a tensor holds them.
func (d *Decoding) encode(v []int32) []byte {
	d.bytes = d.bytes[:0]
	for _, x := range v {
		d.bytes = binary.LittleEndian.AppendUint32(d.bytes, uint32(x))
	}
	return d.bytes
}
