package infer

import (
	"path"
	"regexp"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// Origin is whose code a frame is in.
type Origin uint8

const (
	Native      Origin = iota // C and C++: the unwinder, the allocator, the dispatcher, the interpreter
	Interpreter               // Python's own library
	TorchCode                 // PyTorch's Python
	Library                   // any other installed package
	User                      // the program itself
	ModulePath                // a level of this module's own snapshots
)

// Mark is what a frame shows about the phase that its stack is in.
type Mark uint16

const (
	MarkModule    Mark = 1 << iota // a module is called
	markOptimizer                  // an optimizer steps
	markZero                       // gradients are zeroed
	markBackward                   // the autograd engine runs
	markFunction                   // a Python autograd function is applied: backward if nothing is below it
	markBuild                      // a module or tensor is made, loaded or moved
	markRecompute                  // a checkpointed segment runs again
	MarkCache                      // a key/value cache is extended
	markReducer                    // distributed training's own buffers
	markWorkspace                  // a library's workspace is taken
	MarkLoss                       // a loss is computed
	markForward                    // a function named forward
	MarkAttention                  // attention is computed
)

// FrameFacts is what one frame says, whatever the stack that it is in.
type FrameFacts struct {
	Origin Origin
	Marks  Mark
	Op     string // that a native frame runs, beyond making room for a result
	Node   string // the autograd node whose backward runs
}

// nodePattern is the backward pass of an autograd node.
var nodePattern = regexp.MustCompile(`torch::autograd::(?:generated::)?(\w+Backward\w*|AccumulateGrad|\w+Node)::(?:apply|operator)`)

// torchFile are files of PyTorch's own Python.
var torchFile = regexp.MustCompile(`(?:^|/)(?:site-packages/|dist-packages/)?torch/|/torchinductor_|^<eval_with_key>`)

// FrameOf classifies a frame by its file and name.
func FrameOf(f snapshot.Frame) FrameFacts {
	file := strings.ReplaceAll(f.Filename, `\`, "/")
	o := Native
	switch f.Kind() {
	case snapshot.UserFrame:
		o = User
	case snapshot.LibraryFrame:
		if o = Library; torchFile.MatchString(file) {
			o = TorchCode
		}
	case snapshot.InterpreterFrame:
		o = Interpreter
	case snapshot.ModuleFrame:
		return FrameFacts{Origin: ModulePath}
	case snapshot.OperationFrame:
		if file == "operation" {
			return FrameFacts{Origin: ModulePath}
		}
	}
	if o == Native {
		return nativeFrame(f)
	}
	return FrameFacts{Origin: o, Marks: pythonMarks(o, file, f.Name)}
}

func nativeFrame(frame snapshot.Frame) FrameFacts {
	name := frame.Name
	var f FrameFacts
	if m := nodePattern.FindStringSubmatch(name); m != nil {
		f.Node, f.Marks = m[1], markBackward
	} else {
		f.Op = frame.Operation()
	}
	switch {
	case strings.Contains(name, "torch::autograd::Engine::"), strings.Contains(name, "torch::autograd::PyNode::apply"):
		f.Marks |= markBackward
	case strings.Contains(name, "getCUDABlasLtWorkspace"), strings.Contains(name, "getNewWorkspace"), strings.Contains(name, "getNewCUDABlasLtWorkspace"),
		strings.Contains(name, "getCurrentCUDABlasHandle"):
		f.Marks |= markWorkspace
	case f.Op == "cross_entropy_loss", strings.HasPrefix(f.Op, "nll_loss"), f.Op == "log_softmax", f.Op == "_log_softmax":
		f.Marks |= MarkLoss
	case strings.Contains(f.Op, "attention"):
		f.Marks |= MarkAttention
	case strings.Contains(name, "c10d::Reducer"):
		f.Marks |= markReducer
	}
	return f
}

// fileMarks are files of which any function is a sign.
var fileMarks = []struct {
	part string
	mark Mark
}{
	{"torch/nn/utils/clip_grad.py", markOptimizer},
	{"torch/amp/grad_scaler.py", markOptimizer},
	{"torch/cuda/amp/grad_scaler.py", markOptimizer},
	{"torch/nn/modules/loss.py", MarkLoss},
	{"loss_utils.py", MarkLoss},
	{"deepspeed/ops/adam/", markOptimizer},
}

// nameMarks are functions that are a sign, in files whose path has the part
// (any file if it is empty).
var nameMarks = []struct {
	name, part string
	mark       Mark
}{
	{"_call_impl", "torch/nn/modules/module.py", MarkModule},
	{"_wrapped_call_impl", "torch/nn/modules/module.py", MarkModule},
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
	{"cross_entropy", "torch/nn/functional.py", MarkLoss},
	{"nll_loss", "torch/nn/functional.py", MarkLoss},
	{"log_softmax", "torch/nn/functional.py", MarkLoss},
}

func pythonMarks(o Origin, file, name string) Mark {
	var m Mark
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
	if o != User && name == "step" && (strings.Contains(path.Base(folder), "optim") || strings.Contains(base, "optim")) ||
		strings.HasSuffix(file, "torch/optim/optimizer.py") && (name == "wrapper" || name == "_use_grad") {
		m |= markOptimizer
	}
	if lower := strings.ToLower(name); strings.Contains(lower, "attention") || strings.Contains(lower, "sdpa") {
		m |= MarkAttention
	}
	if name == "forward" || strings.HasSuffix(name, ".forward") {
		m |= markForward
	}
	if strings.Contains(strings.ToLower(path.Base(file)), "cache") && (name == "update" || strings.HasPrefix(name, "append")) {
		m |= MarkCache
	}
	return m
}
