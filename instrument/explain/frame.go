package explain

import (
	"path"
	"regexp"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// origin is whose code a frame is in.
type origin uint8

const (
	native      origin = iota // C and C++: the unwinder, the allocator, the dispatcher, the interpreter
	interpreter               // Python's own library
	torchCode                 // PyTorch's Python
	library                   // any other installed package
	user                      // the program itself
	modulePath                // a level of this module's own snapshots
)

// mark is what a frame shows about the phase that its stack is in.
type mark uint16

const (
	markModule    mark = 1 << iota // a module is called
	markOptimizer                  // an optimizer steps
	markZero                       // gradients are zeroed
	markBackward                   // the autograd engine runs
	markFunction                   // a Python autograd function is applied: backward if nothing is below it
	markBuild                      // a module or tensor is made, loaded or moved
	markRecompute                  // a checkpointed segment runs again
	markNoGrad                     // gradients are off
	markCache                      // a key/value cache is extended
	markReducer                    // distributed training's own buffers
	markWorkspace                  // a library's workspace is taken
	markLoss                       // a loss is computed
	markForward                    // a function named forward
	markAttention                  // attention is computed
)

// frameFacts is what one frame says, whatever the stack that it is in.
type frameFacts struct {
	origin origin
	marks  mark
	op     string // the ATen operation of a dispatcher's frame
	node   string // the autograd node whose backward runs
}

var (
	opPattern   = regexp.MustCompile(`^at::_ops::(\w+)::(?:call|redispatch)`)
	nodePattern = regexp.MustCompile(`torch::autograd::(?:generated::)?(\w+Backward\w*|AccumulateGrad|\w+Node)::(?:apply|operator)`)
)

// allocating are operations that only make room for another operation's
// result, which is the one to name.
var allocating = map[string]bool{"empty_memory_format": true, "empty_strided": true, "resize_": true, "empty_like": true,
	"new_empty": true, "new_empty_strided": true, "set_source_Storage": true, "_resize_output_": true}

var nativeExtensions = map[string]bool{".cpp": true, ".cc": true, ".cxx": true, ".c": true, ".h": true, ".hpp": true, ".cu": true,
	".cuh": true, ".so": true, ".inl": true}

// frameOf classifies a frame by its file and name.
func frameOf(f snapshot.Frame) frameFacts {
	file := strings.ReplaceAll(f.Filename, `\`, "/")
	o := originOf(file, f.Name)
	if o == native {
		return nativeFrame(f.Name)
	}
	return frameFacts{origin: o, marks: pythonMarks(o, file, f.Name)}
}

func originOf(file, name string) origin {
	switch {
	case file == "module" || file == "operation":
		return modulePath
	case strings.HasPrefix(file, "<eval_with_key>"), strings.Contains(file, "/torchinductor_"):
		return torchCode
	case strings.HasPrefix(file, "<frozen "), file == "<string>", strings.HasPrefix(file, "<__array_function__"):
		return interpreter
	case strings.HasPrefix(file, "<"): // <stdin>, <ipython-input-3-…>
		return user
	case file == "" || file == "??" || strings.HasPrefix(file, ":"), nativeExtensions[path.Ext(file)], strings.Contains(name, "::"):
		return native
	}
	if i := max(strings.LastIndex(file, "/site-packages/"), strings.LastIndex(file, "/dist-packages/")); i >= 0 {
		if strings.HasPrefix(file[i+len("/site-packages/"):], "torch/") {
			return torchCode
		}
		return library
	}
	switch {
	case strings.HasPrefix(file, "torch/"):
		return torchCode
	case strings.HasPrefix(file, "site-packages/"), strings.HasPrefix(file, "dist-packages/"):
		return library
	case strings.Contains(file, "/lib/python3"), strings.Contains(file, "/lib64/python3"), strings.Contains(file, ":/") && strings.Contains(file, "/Lib/"):
		return interpreter
	}
	return user
}

func nativeFrame(name string) frameFacts {
	var f frameFacts
	if m := opPattern.FindStringSubmatch(name); m != nil {
		f.op = m[1]
	}
	if m := nodePattern.FindStringSubmatch(name); m != nil {
		f.node, f.marks = m[1], markBackward
	}
	switch {
	case strings.Contains(name, "torch::autograd::Engine::"), strings.Contains(name, "torch::autograd::PyNode::apply"):
		f.marks |= markBackward
	case strings.Contains(name, "getCUDABlasLtWorkspace"), strings.Contains(name, "getNewWorkspace"), strings.Contains(name, "getNewCUDABlasLtWorkspace"),
		strings.Contains(name, "getCurrentCUDABlasHandle"):
		f.marks |= markWorkspace
	case f.op == "cross_entropy_loss", f.op == "nll_loss", strings.HasPrefix(f.op, "nll_loss"), f.op == "log_softmax", f.op == "_log_softmax":
		f.marks |= markLoss
	case strings.Contains(f.op, "attention"):
		f.marks |= markAttention
	case strings.Contains(name, "c10d::Reducer"):
		f.marks |= markReducer
	}
	return f
}

// fileMarks are files of which any function is a sign.
var fileMarks = []struct {
	part string
	mark mark
}{
	{"torch/nn/utils/clip_grad.py", markOptimizer},
	{"torch/amp/grad_scaler.py", markOptimizer},
	{"torch/cuda/amp/grad_scaler.py", markOptimizer},
	{"torch/nn/modules/loss.py", markLoss},
	{"loss_utils.py", markLoss},
	{"torch/nn/parallel/distributed.py", markReducer},
	{"deepspeed/ops/adam/", markOptimizer},
}

// nameMarks are functions that are a sign, in files whose path has the part
// (any file if it is empty).
var nameMarks = []struct {
	name, part string
	mark       mark
}{
	{"_call_impl", "torch/nn/modules/module.py", markModule},
	{"_wrapped_call_impl", "torch/nn/modules/module.py", markModule},
	{"zero_grad", "", markZero},
	{"_engine_run_backward", "torch/autograd/", markBackward},
	{"backward", "torch/autograd/", markBackward},
	{"grad", "torch/autograd/__init__.py", markBackward},
	{"_make_grads", "torch/autograd/__init__.py", markBackward},
	{"backward", "torch/_tensor.py", markBackward},
	{"apply", "torch/autograd/function.py", markFunction},
	{"__init__", "", markBuild},
	{"_apply", "torch/nn/modules/module.py", markBuild},
	{"load_state_dict", "", markBuild},
	{"from_pretrained", "", markBuild},
	{"_load_from_state_dict", "", markBuild},
	{"__deepcopy__", "", markBuild},
	{"unpack_hook", "torch/utils/checkpoint.py", markRecompute},
	{"backward", "checkpoint", markRecompute},
	{"recompute_fn", "torch/utils/checkpoint.py", markRecompute},
	{"cross_entropy", "torch/nn/functional.py", markLoss},
	{"nll_loss", "torch/nn/functional.py", markLoss},
	{"log_softmax", "torch/nn/functional.py", markLoss},
	{"_decorate_context", "torch/utils/_contextlib.py", markNoGrad},
}

func pythonMarks(o origin, file, name string) mark {
	var m mark
	for _, f := range fileMarks {
		if strings.Contains(file, f.part) {
			m |= f.mark
		}
	}
	for _, f := range nameMarks {
		if name == f.name && strings.Contains(file, f.part) {
			m |= f.mark
		}
	}
	folder, base := path.Split(file)
	if o != user && name == "step" && (strings.Contains(path.Base(folder), "optim") || strings.Contains(base, "optim")) ||
		strings.HasSuffix(file, "torch/optim/optimizer.py") && (name == "wrapper" || name == "_use_grad") {
		m |= markOptimizer
	}
	if lower := strings.ToLower(name); strings.Contains(lower, "attention") || strings.Contains(lower, "sdpa") {
		m |= markAttention
	}
	if name == "forward" || strings.HasSuffix(name, ".forward") {
		m |= markForward
	}
	if strings.Contains(strings.ToLower(path.Base(file)), "cache") && (name == "update" || strings.HasPrefix(name, "append")) {
		m |= markCache
	}
	return m
}
