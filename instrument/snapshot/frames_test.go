package snapshot

import "testing"

func TestFrameKind(t *testing.T) {
	for _, c := range []struct {
		file, name string
		line       int
		want       FrameKind
		operation  string
	}{
		{"train.py", "step", 3, UserFrame, ""},
		{"/srv/app/model.py", "forward", 3, UserFrame, ""},
		{"/home/me/lib/python/tools.py", "forward", 3, UserFrame, ""},
		{"/home/me/torch/train.py", "main", 3, UserFrame, ""},
		{`C:\work\train.py`, "main", 3, UserFrame, ""},
		{"/usr/local/bin/train", "main", 3, UserFrame, ""},
		{"??", "start_thread", 3, RuntimeFrame, ""},
		{"<stdin>", "<module>", 1, UserFrame, ""},
		{"<ipython-input-3-aa>", "<module>", 1, UserFrame, ""},
		{"/tmp/ipykernel_77/12.py", "<module>", 1, UserFrame, ""},
		{"<eval_with_key>.12", "forward", 1, LibraryFrame, ""},
		{"<frozen importlib._bootstrap>", "_load", 1, InterpreterFrame, ""},
		{"/usr/lib/python3.12/site-packages/torch/nn/modules/module.py", "_call_impl", 1784, LibraryFrame, ""},
		{"/usr/lib/python3/dist-packages/transformers/models/llama/modeling_llama.py", "forward", 1, LibraryFrame, ""},
		{"/home/me/pytorch/torch/nn/modules/linear.py", "forward", 1, LibraryFrame, ""},
		{"torch/_compile.py", "inner", 1, LibraryFrame, ""},
		{`C:\Users\me\AppData\Local\Programs\Python\Python312\Lib\site-packages\torch\x.py`, "f", 1, LibraryFrame, ""},
		{`C:\Users\me\Python312\Lib\contextlib.py`, "inner", 1, InterpreterFrame, ""},
		{"/tmp/torchinductor_me/ab/cab.py", "call", 1, LibraryFrame, ""},
		{"/usr/lib/python3/contextlib.py", "inner", 1, InterpreterFrame, ""},
		{"/opt/conda/lib/python3.10/runpy.py", "run", 1, InterpreterFrame, ""},
		{"train/step.go", "train.Step", 4, UserFrame, ""},
		{"module", "mlp", 0, ModuleFrame, ""},
		{"operation", "linear", 0, OperationFrame, "linear"},
		{"??", "torch::unwind::unwind()", 0, RuntimeFrame, ""},
		{":0", "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(signed char, unsigned long, CUstream_st*)", 0, RuntimeFrame, ""},
		{"??", "at::detail::empty_cuda(c10::ArrayRef<long>, c10::ScalarType)", 0, RuntimeFrame, ""},
		{"??", "at::native::empty_cuda(c10::ArrayRef<long>)", 0, RuntimeFrame, ""},
		{"??", "_PyEval_EvalFrameDefault", 0, RuntimeFrame, ""},
		{"??", "c10::Dispatcher::callBoxed(c10::OperatorHandle const&)", 0, RuntimeFrame, ""},
		{"python_torch_functions.cpp", "torch::autograd::THPVariable_linear(_object*, _object*, _object*)", 0, OperationFrame, "linear"},
		{"python_nn_functions.cpp", "torch::autograd::THPVariable_gelu(_object*, _object*, _object*)", 0, OperationFrame, "gelu"},
		{"??", "at::_ops::addmm::call(at::Tensor const&)", 0, OperationFrame, "addmm"},
		{"??", "torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)", 0, OperationFrame, "AddmmBackward0"},
		{"??", "torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)", 0, OperationFrame, "AccumulateGrad"},
		{"??", "at::(anonymous namespace)::wrapper_CUDA_mm(at::Tensor const&, at::Tensor const&)", 0, OperationFrame, "mm"},
		{"??", "at::native::softmax_cuda_out(at::Tensor const&)", 0, OperationFrame, "softmax"},
	} {
		f := Frame{c.file, c.line, c.name}
		if k, op := f.Kind(), f.Operation(); k != c.want || op != c.operation {
			t.Errorf("%v: %v, operation %q; want %v, %q", f, k, op, c.want, c.operation)
		}
	}
}

func TestOriginOf(t *testing.T) {
	unwind := Frame{"??", 0, "torch::unwind::unwind()"}
	linear := Frame{"x.cpp", 0, "torch::autograd::THPVariable_linear(_object*, _object*, _object*)"}
	node := Frame{"??", 0, "torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)"}
	library := Frame{"/usr/lib/python3/dist-packages/torch/nn/modules/linear.py", 130, "forward"}
	user := Frame{"/srv/app/model.py", 12, "forward"}
	outer := Frame{"/srv/app/train.py", 99, "main"}
	for want, frames := range map[string][]Frame{
		"/srv/app/model.py:12 forward (linear)": {unwind, linear, library, user, outer},
		"/srv/app/model.py:12 forward":          {unwind, user, linear},
		"MmBackward0":                           {unwind, node},
		library.Filename + ":130 forward":       {unwind, library},
		"torch::unwind::unwind()":               {unwind},
	} {
		if o, ok := OriginOf(frames); !ok || o.String() != want {
			t.Errorf("%v, want %s", o, want)
		}
	}
	if _, ok := OriginOf(nil); ok {
		t.Error("a stack without frames has an origin")
	}
}
