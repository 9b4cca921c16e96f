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
	op     string // that a native frame runs, beyond making room for a result
	node   string // the autograd node whose backward runs
}

// nodePattern is the backward pass of an autograd node.
var nodePattern = regexp.MustCompile(`torch::autograd::(?:generated::)?(\w+Backward\w*|AccumulateGrad|\w+Node)::(?:apply|operator)`)

// torchFile are files of PyTorch's own Python.
var torchFile = regexp.MustCompile(`(?:^|/)(?:site-packages/|dist-packages/)?torch/|/torchinductor_|^<eval_with_key>`)

// frameOf classifies a frame by its file and name.
func frameOf(f snapshot.Frame) frameFacts {
	file := strings.ReplaceAll(f.Filename, `\`, "/")
	o := native
	switch f.Kind() {
	case snapshot.UserFrame:
		o = user
	case snapshot.LibraryFrame:
		if o = library; torchFile.MatchString(file) {
			o = torchCode
		}
	case snapshot.InterpreterFrame:
		o = interpreter
	case snapshot.ModuleFrame:
		return frameFacts{origin: modulePath}
	case snapshot.OperationFrame:
		if file == "operation" {
			return frameFacts{origin: modulePath}
		}
	}
	if o == native {
		return nativeFrame(f)
	}
	return frameFacts{origin: o, marks: pythonMarks(o, file, f.Name)}
}

func nativeFrame(frame snapshot.Frame) frameFacts {
	name := frame.Name
	var f frameFacts
	if m := nodePattern.FindStringSubmatch(name); m != nil {
		f.node, f.marks = m[1], markBackward
	} else {
		f.op = frame.Operation()
	}
	switch {
	case strings.Contains(name, "torch::autograd::Engine::"), strings.Contains(name, "torch::autograd::PyNode::apply"):
		f.marks |= markBackward
	case strings.Contains(name, "getCUDABlasLtWorkspace"), strings.Contains(name, "getNewWorkspace"), strings.Contains(name, "getNewCUDABlasLtWorkspace"),
		strings.Contains(name, "getCurrentCUDABlasHandle"):
		f.marks |= markWorkspace
	case f.op == "cross_entropy_loss", strings.HasPrefix(f.op, "nll_loss"), f.op == "log_softmax", f.op == "_log_softmax":
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
	{"_ddp_init_helper", "torch/nn/parallel/distributed.py", markReducer},
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
