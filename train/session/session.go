// Package session runs plans on a device: it owns the model's parameters there,
// takes and drops memory as a plan says, and mirrors the loop that PyTorch users
// write.
package session

import (
	"errors"
	"fmt"
	"weak"

	"github.com/tidemark-lab/tidemark/device"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument"
	"github.com/tidemark-lab/tidemark/nn"
	"github.com/tidemark-lab/tidemark/nn/op"
	"github.com/tidemark-lab/tidemark/train/plan"
)

// Session runs plans on a device and owns the model's parameters there. It
// mirrors the loop that PyTorch users write: Forward gives a result, Backward
// takes it, an optimizer steps, ZeroGrad drops the gradients. Memory lives as
// long as something refers to it: a Value until it is released, a Result and
// what it saved until Backward or Release.
//
// A Session is used by one goroutine at a time.
type Session struct {
	dev       device.Device
	recorder  *instrument.Recorder
	params    []*Param
	byPointer map[*nn.Parameter]*Param
	workspace workspace
	libraries libraries
	passes    int64 // forward passes so far that drew at random, which numbers the draws
	seed      uint64
	steps     int    // of Train so far
	staging   []byte // inputs on their way to the device
	hooks     []func(nn.Call, []device.Tensor)
	caller    instrument.Caller // who asked for what is being done
	callers   map[stack]instrument.Caller
	checked   map[weak.Pointer[plan.Plan]]struct{} // plans that check found nothing wrong with

	interrupted func() error
}

// Options configure a Session. The zero value is the default.
type Options struct {
	// WorkspaceBytes is the memory that a matrix library takes at its first
	// product and keeps. It is taken in blocks of at most 32 MiB, as cuBLAS
	// and cuBLASLt take theirs on an H200.
	WorkspaceBytes int64
	// Profile is what PyTorch's libraries take on a card, for predictions of
	// the eager composition.
	Profile Profile
	// Seed is where random draws (initial weights, dropout) begin.
	Seed uint64
	// Interrupted is asked before each parameter gets its initial values and
	// before each operation of a pass; its error ends them. An optimizer's step
	// is never interrupted. Nil never interrupts.
	Interrupted func() error
}

// Param is a parameter on a device.
type Param struct {
	Name  string
	Model *nn.Parameter
	Value device.Tensor
	grad  *memory
	block *memory
}

// Gradient is the parameter's gradient; ok is false when there is none.
func (p *Param) Gradient() (g device.Tensor, ok bool) {
	if p.grad == nil {
		return device.Tensor{}, false
	}
	return device.Tensor{Spec: p.Value.Spec, Addr: p.grad.block.Addr()}, true
}

// memory is a block with a count of what refers to it.
type memory struct {
	block *alloc.Block
	refs  int
}

// New makes a session on a device; recorder may be nil.
func New(dev device.Device, recorder *instrument.Recorder, o Options) *Session {
	return &Session{
		dev:       dev,
		recorder:  recorder,
		byPointer: make(map[*nn.Parameter]*Param),
		checked:   make(map[weak.Pointer[plan.Plan]]struct{}),
		workspace: workspace{bytes: o.WorkspaceBytes},
		libraries: libraries{profile: o.Profile},
		seed:      o.Seed,

		interrupted: o.Interrupted,
	}
}

// Device is the session's device.
func (s *Session) Device() device.Device { return s.dev }

// Recorder is the session's recorder, or nil.
func (s *Session) Recorder() *instrument.Recorder { return s.recorder }

// Parameters are the model's parameters in the order in which they were
// created.
func (s *Session) Parameters() []*Param { return s.params }

// Parameter is the device's side of a parameter, or nil.
func (s *Session) Parameter(p *nn.Parameter) *Param { return s.byPointer[p] }

// Passes is the number of forward passes so far that drew at random, which
// numbers the draws.
func (s *Session) Passes() int64 { return s.passes }

// SetPasses has the numbering of random draws go on from where a saved
// training left it.
func (s *Session) SetPasses(n int64) { s.passes = n }

// OnForward adds a hook that sees the values of a module's outputs as soon as
// they are computed. They are only valid during the call.
func (s *Session) OnForward(f func(call nn.Call, values []device.Tensor)) {
	s.hooks = append(s.hooks, f)
}

// Allocate takes memory for a tensor under a label.
func (s *Session) Allocate(spec device.Spec, label instrument.Label) (*Value, error) {
	m, err := s.allocate(spec.Bytes(), s.tag(label), label)
	if err != nil {
		return nil, err
	}
	return &Value{s: s, m: m, Tensor: device.Tensor{Spec: spec, Addr: m.block.Addr()}}, nil
}

func (s *Session) tag(l instrument.Label) alloc.Tag {
	if s.recorder == nil {
		return 0
	}
	if l.Caller == (instrument.Caller{}) {
		l.Caller = s.caller
	}
	return s.recorder.Tag(l)
}

func (s *Session) allocate(bytes int64, tag alloc.Tag, label instrument.Label) (*memory, error) {
	b, err := s.dev.Allocator().Malloc(max(bytes, 1), 0, tag)
	if err != nil {
		e := &AllocationError{Bytes: bytes, Label: label, Err: err}
		if s.recorder != nil {
			e.InUse = s.recorder.Usage().ByCategory
		}
		if a := s.dev.Allocator(); e.fragmented() {
			e.Expandable = a.Config().ExpandableSegments
			e.Pinned = pinnedSegments(a.Segments(), s.recorder)
		}
		return nil, e
	}
	return &memory{block: b, refs: 1}, nil
}

func (s *Session) release(m *memory) {
	if m == nil {
		return
	}
	if m.refs--; m.refs == 0 {
		s.dev.Allocator().Free(m.block)
	}
}

// Value is a tensor that the session's user refers to, such as a batch.
type Value struct {
	s *Session
	m *memory
	device.Tensor
}

// Release drops the reference. The memory goes when nothing else, such as a
// result that saved it for backward, refers to it.
func (v *Value) Release() {
	if v == nil || v.m == nil {
		return
	}
	v.s.release(v.m)
	v.m = nil
}

// Upload copies host bytes into the value.
func (v *Value) Upload(src []byte) error {
	if err := v.s.owns(v); err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	return v.s.dev.Upload(v.Tensor, src)
}

// Input allocates a batch and copies its elements, as they are in memory, to
// it. Without them nothing is copied. For a plan's inputs see Inputs.
func (s *Session) Input(name string, spec device.Spec, src []byte) (*Value, error) {
	s.calledFrom()
	return s.input(name, spec, src)
}

func (s *Session) input(name string, spec device.Spec, src []byte) (*Value, error) {
	v, err := s.Allocate(spec, instrument.Label{Category: instrument.Input, Module: name, Op: "input"})
	if err != nil {
		return nil, err
	}
	if src != nil {
		if err := v.Upload(src); err != nil {
			v.Release()
			return nil, fmt.Errorf("input %s: %w", name, err)
		}
	}
	return v, nil
}

// Materialize allocates a model's parameters in order and gives them their
// initial values. A parameter has memory once: it is an error if the session
// has one of them already.
func (s *Session) Materialize(root nn.Module, dt device.DType) error {
	s.calledFrom()
	clear(s.checked)
	for i, p := range nn.Parameters(root) {
		if s.interrupted != nil {
			if err := s.interrupted(); err != nil {
				return err
			}
		}
		if q := s.byPointer[p.Parameter]; q != nil {
			return fmt.Errorf("materialize: %s is there already, as %v", q.Name, q.Value.Spec)
		}
		label := instrument.Label{Category: instrument.Parameter, Module: moduleOf(p.Name), Op: leafOf(p.Name)}
		spec := device.Spec{DType: p.DType(dt), Shape: p.Shape}
		m, err := s.allocate(spec.Bytes(), s.tag(label), label)
		if err != nil {
			return err
		}
		param := &Param{Name: p.Name, Model: p.Parameter, block: m,
			Value: device.Tensor{Spec: spec, Addr: m.block.Addr()}}
		s.params = append(s.params, param)
		s.byPointer[p.Parameter] = param
		if err := s.initialize(param, i); err != nil {
			return fmt.Errorf("initial values of %s: %w", p.Name, err)
		}
	}
	return nil
}

// Convert gives a parameter memory of another element type and drops its own,
// as module.to(dtype) does. Its values are not carried over: it is for devices
// that compute nothing. The parameter may have no gradient, which would keep
// its element type.
func (s *Session) Convert(p *Param, dt device.DType) error {
	switch {
	case p == nil || s.byPointer[p.Model] != p:
		return errors.New("convert: the parameter is not this session's")
	case p.grad != nil:
		return fmt.Errorf("convert: %s has a gradient of %v; drop it first (ZeroGrad)", p.Name, p.Value.DType)
	}
	clear(s.checked)
	spec := device.Spec{DType: dt, Shape: p.Value.Shape}
	label := instrument.Label{Category: instrument.Parameter, Module: moduleOf(p.Name), Op: leafOf(p.Name)}
	m, err := s.allocate(spec.Bytes(), s.tag(label), label)
	if err != nil {
		return err
	}
	s.release(p.block)
	p.block, p.Value = m, device.Tensor{Spec: spec, Addr: m.block.Addr()}
	return nil
}

// initialize fills a parameter from the session's seed and its own number.
func (s *Session) initialize(p *Param, number int) error {
	c, err := op.Fill(p.Value, p.Model.Init.Kind, p.Model.Init.Scale, s.seed, uint64(number))
	if err != nil {
		return err
	}
	return s.dev.Run(c)
}

// ZeroGrad drops all gradients.
func (s *Session) ZeroGrad() {
	for _, p := range s.params {
		s.release(p.grad)
		p.grad = nil
	}
}

// Close releases parameters and gradients. Values and results are their
// holders' to release, and the library's workspace stays until the device is
// closed, as it does in PyTorch.
func (s *Session) Close() {
	s.ZeroGrad()
	for _, p := range s.params {
		s.release(p.block)
	}
	s.params = nil
	clear(s.byPointer)
	clear(s.checked)
}

// Fill gives a value random or constant contents: see op.Fill. Equal streams
// give equal contents.
func (s *Session) Fill(v *Value, kind string, scale float64, stream uint64) error {
	if err := s.owns(v); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	c, err := op.Fill(v.Tensor, kind, scale, s.seed, stream)
	if err != nil {
		return err
	}
	return s.dev.Run(c)
}

// Measure runs f as a phase: it waits for earlier work, notes the memory in
// use, resets the peak, runs, and waits again.
func (s *Session) Measure(name string, f func() error) error {
	if s.recorder == nil {
		return f()
	}
	_, err := s.recorder.Phase(name, s.dev.Synchronize, f)
	return err
}

// Interrupt has passes end with f's error from now on, as
// Options.Interrupted has, until restore.
func (s *Session) Interrupt(f func() error) (restore func()) {
	before := s.interrupted
	s.interrupted = f
	return func() { s.interrupted = before }
}

// StopRecording ends the session's recording; later phases are not measured.
func (s *Session) StopRecording() {
	if s.recorder != nil {
		s.recorder.Stop()
		s.recorder = nil
	}
}

// errReleased is returned for results that have nothing left to run backward
// from.
var errReleased = errors.New("backward: the result was run backward already, or released")
