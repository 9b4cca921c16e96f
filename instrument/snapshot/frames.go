package snapshot

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// FrameKind says whose code a frame is.
type FrameKind uint8

// The kinds of frames.
const (
	// UserFrame is the program's own: Python outside site-packages, PyTorch and
	// the interpreter, or Go.
	UserFrame FrameKind = iota
	// LibraryFrame is Python of an installed package, of PyTorch, or generated
	// by it.
	LibraryFrame
	// InterpreterFrame is Python of the interpreter's own library.
	InterpreterFrame
	// OperationFrame is native code of an operation: Frame.Operation names it.
	OperationFrame
	// ModuleFrame is a level of a module's path in a recording of this program.
	ModuleFrame
	// RuntimeFrame is native code that every stack has: the unwinder, the
	// allocator, the dispatcher, the interpreter.
	RuntimeFrame
)

var frameKindNames = [...]string{"user", "library", "interpreter", "operation", "module", "runtime"}

// String is the kind in a word.
func (k FrameKind) String() string { return frameKindNames[k] }

// libraryParts are parts of paths that only installed packages have, and
// those of PyTorch where it runs from its own sources.
var libraryParts = []string{"/site-packages/", "/dist-packages/", "/torchinductor_", "/torch/nn/", "/torch/optim/",
	"/torch/autograd/", "/torch/utils/", "/torch/_", "/torch/amp/", "/torch/cuda/", "/torch/distributed/", "/torch/fx/",
	"/torch/jit/", "/torch/functional.py", "/torch/overrides.py", "/torch/library.py"}

// interpreterPath is where Python's own library lies: lib/python3.12, or
// Lib under a folder of Python's on Windows.
var interpreterPath = regexp.MustCompile(`(?i)/lib/python\d[\d.]*t?/|/python[\d.]*/lib/|^python\d+\.zip/`)

// userCode are names in angle brackets of code that the user typed; others are
// generated.
var userCode = []string{"<stdin>", "<string>", "<ipython-input-"}

// operationRules find the name of an operation in the name of a native
// function. The first that matches decides; $1 is the operation.
var operationRules = []*regexp.Regexp{
	regexp.MustCompile(`^torch::autograd::generated::(\w+)::`),
	regexp.MustCompile(`^torch::autograd::THP(?:Variable|NN|Linalg|FFT|Special|Sparse)\w*?_(\w+)\(`),
	regexp.MustCompile(`^torch::autograd::(AccumulateGrad|CopySlices|\w+Backward\d*)::`),
	regexp.MustCompile(`^at::_ops::(\w+)::`),
	regexp.MustCompile(`^at::native::(?:\(anonymous namespace\)::)?(\w+?)(?:_cuda\w*|_out|_kernel\w*)?[(<]`),
	regexp.MustCompile(`^at::\(anonymous namespace\)::wrapper_\w*?(?:CUDA|Cuda)\w*?_{1,2}(\w+)\(`),
	regexp.MustCompile(`^at::(?:cuda|meta|compositeexplicitautograd)::(?:blas::)?(\w+)[(<]`),
	regexp.MustCompile(`^at::(\w+)\(`),
	regexp.MustCompile(`^(?:c10d|torch::distributed)::(?:\w+::)*(\w+)\(`),
}

// allocating are operations that make room for others' results and are not
// what the program asked for.
var allocating = regexp.MustCompile(`^(?:empty\w*|resize\w*|new_empty\w*|create_out|set_output\w*|TensorBase|TensorIterator\w*)$`)

// Kind says whose code f is.
func (f Frame) Kind() FrameKind {
	switch {
	case f.Filename == moduleFile && f.Line == 0:
		return ModuleFrame
	case f.Filename == operationFile && f.Line == 0:
		return OperationFrame
	case strings.HasPrefix(f.Filename, "<"):
		for _, p := range userCode {
			if strings.HasPrefix(f.Filename, p) {
				return UserFrame
			}
		}
		if strings.HasPrefix(f.Filename, "<frozen ") {
			return InterpreterFrame
		}
		return LibraryFrame
	}
	switch path.Ext(f.Filename) {
	case ".py", ".pyx", ".ipynb", ".pyc":
		return pythonKind(strings.ReplaceAll(f.Filename, `\`, "/"))
	case ".go":
		return UserFrame
	case "":
		// A script without an ending has lines, as native code hardly has.
		if f.Line > 0 && !strings.Contains(f.Name, "::") && !strings.HasPrefix(f.Filename, "?") {
			return pythonKind(f.Filename)
		}
	}
	if f.Operation() != "" {
		return OperationFrame
	}
	return RuntimeFrame
}

func pythonKind(file string) FrameKind {
	for _, part := range libraryParts {
		if strings.Contains(file, part) || strings.HasPrefix(file, part[1:]) {
			return LibraryFrame
		}
	}
	if interpreterPath.MatchString(file) {
		return InterpreterFrame
	}
	return UserFrame
}

// Operation is the operation that a native frame runs, such as linear,
// aten::addmm as addmm, or the autograd node AddmmBackward0; empty for other
// frames and for those that only make room for a result.
func (f Frame) Operation() string {
	if f.Filename == operationFile && f.Line == 0 {
		return f.Name
	}
	if strings.HasSuffix(f.Filename, ".py") {
		return ""
	}
	for _, rule := range operationRules {
		if m := rule.FindStringSubmatch(f.Name); m != nil {
			if allocating.MatchString(m[1]) {
				return ""
			}
			return m[1]
		}
	}
	return ""
}

// Origin is where a stack comes from.
type Origin struct {
	// Frame is the innermost frame of the user's, or else the innermost one
	// that is not of the runtime, or else the innermost.
	Frame Frame
	Kind  FrameKind // of Frame
	// Operation is the innermost operation of the stack; empty if its frames
	// name none.
	Operation string
}

// OriginOf finds where a stack, innermost frame first, comes from. It reports
// false for a stack without frames.
func OriginOf(frames []Frame) (Origin, bool) {
	if len(frames) == 0 {
		return Origin{}, false
	}
	o := Origin{Frame: frames[0], Kind: RuntimeFrame}
	for _, f := range frames {
		k := f.Kind()
		if k == OperationFrame && o.Operation == "" {
			o.Operation = f.Operation()
		}
		if k == UserFrame {
			o.Frame, o.Kind = f, k
			break
		}
		if k != RuntimeFrame && o.Kind == RuntimeFrame {
			o.Frame, o.Kind = f, k
		}
	}
	return o, true
}

// String names the place in a line, as in "model.py:12 forward (linear)".
func (o Origin) String() string {
	if o.Kind == OperationFrame || o.Kind == RuntimeFrame && o.Operation != "" {
		return o.Operation
	}
	place := o.Frame.Name
	if o.Kind != ModuleFrame && (o.Kind != RuntimeFrame || o.Frame.Line > 0) {
		place = fmt.Sprintf("%s:%d %s", o.Frame.Filename, o.Frame.Line, o.Frame.Name)
	}
	if o.Operation != "" {
		place += " (" + o.Operation + ")"
	}
	return place
}
