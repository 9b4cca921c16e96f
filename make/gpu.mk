# The GPU build. Needs a C compiler, and CUDA's headers: from CUDA_HOME, from
# the usual places, or from NVIDIA's Python wheels (make gpu-sdk). Neither a
# card nor CUDA's libraries are needed to build: the program opens them when it
# is asked for a cuda device.

GPU_SDK := $(CURDIR)/.gpu-sdk
GPU_CUDA_VERSION ?= 13.0
# The last CUDA 12, whose compiler is the last that knows sm_70, and the oldest
# CUDA that the cuda device is built against.
GPU_CUDA12_VERSION ?= 12.9
GPU_CUDA11_VERSION ?= 11.8
PYTHON ?= python3

CUDA_INCLUDE ?= $(firstword $(foreach d,$(CUDA_HOME) $(CUDA_PATH) /usr/local/cuda /opt/cuda $(GPU_SDK),$(if $(wildcard $(d)/include/nvrtc.h),$(d)/include)))

# The compiler runs in other folders, so the path must be absolute. What is
# linked is kept apart by the headers' version: Go does not see a library change.
GPU_INCLUDE = $(abspath $(CUDA_INCLUDE))
GPU_LINK_DIR = $(GPU_SDK)/link/$(shell sed -n 's/^.define CUDA_VERSION *//p' $(GPU_INCLUDE)/cuda.h)
GPU_ENV = CGO_ENABLED=1 \
	CGO_CFLAGS="-O2 -I$(CURDIR)/device/cuda/include -I$(GPU_INCLUDE)" \
	CGO_LDFLAGS="-L$(GPU_LINK_DIR)"

# gpu-sdk fetches CUDA's headers and the run-time compiler into .gpu-sdk;
# gpu-sdk-12 and gpu-sdk-11 older ones into .gpu-sdk/12 and .gpu-sdk/11, and
# CUDA_HOME=.gpu-sdk/11 builds against these.
.PHONY: gpu-sdk gpu-sdk-12 gpu-sdk-11 gpu-headers gpu-link gpu gpu-vet gpu-bench gpu-test-binary gpu-check \
	gpu-kernels gpu-kernels-short gpu-emulate
gpu-sdk: $(GPU_SDK)/include/nvrtc.h

$(GPU_SDK)/include/nvrtc.h: make/gpu_sdk.py
	$(PYTHON) make/gpu_sdk.py --out $(GPU_SDK) --version $(GPU_CUDA_VERSION)

gpu-sdk-12: $(GPU_SDK)/12/include/nvrtc.h

$(GPU_SDK)/12/include/nvrtc.h: make/gpu_sdk.py
	$(PYTHON) make/gpu_sdk.py --out $(GPU_SDK)/12 --version $(GPU_CUDA12_VERSION)

gpu-sdk-11: $(GPU_SDK)/11/include/nvrtc.h

$(GPU_SDK)/11/include/nvrtc.h: make/gpu_sdk.py
	$(PYTHON) make/gpu_sdk.py --out $(GPU_SDK)/11 --version $(GPU_CUDA11_VERSION)

gpu-headers:
	@test -n "$(CUDA_INCLUDE)" || { echo "no CUDA headers: set CUDA_HOME, or run make gpu-sdk" >&2; exit 1; }

# What stands in for the libraries at link time; see device/cuda/internal/genload.
gpu-link: gpu-headers
	@$(MAKE) -s --no-print-directory CUDA_INCLUDE=$(GPU_INCLUDE) $(GPU_LINK_DIR)/libcuda.a $(GPU_LINK_DIR)/libnvrtc.a

GENLOAD = device/cuda/internal/genload/main.go
$(GPU_SDK)/link/%/libcuda.a: $(GENLOAD)
	@mkdir -p $(@D) && echo '*' >$(GPU_SDK)/.gitignore
	go run ./$(<D) -library cuda -prefix cu -error 500 $(GPU_INCLUDE)/cuda.h >$(@D)/cuda.S
	cd $(@D) && $(CC) -c cuda.S -o cuda.o && rm -f $@ && $(AR) rcs $@ cuda.o

$(GPU_SDK)/link/%/libnvrtc.a: $(GENLOAD)
	@mkdir -p $(@D) && echo '*' >$(GPU_SDK)/.gitignore
	go run ./$(<D) -library nvrtc -prefix nvrtc -error 11 $(GPU_INCLUDE)/nvrtc.h >$(@D)/nvrtc.S
	cd $(@D) && $(CC) -c nvrtc.S -o nvrtc.o && rm -f $@ && $(AR) rcs $@ nvrtc.o

# gpu builds the program with the cuda device in it.
gpu: gpu-link
	$(GPU_ENV) go build -tags gpu -trimpath -ldflags="-s -w" -o bin/tidemark ./cmd/tidemark

gpu-vet: gpu-link
	$(GPU_ENV) go vet -tags gpu ./device/cuda/... ./cmd/tidemark ./bench/gpu

# gpu-bench builds what bench/gpu/compare.py runs beside PyTorch.
gpu-bench: gpu-link
	$(GPU_ENV) go build -tags gpu -trimpath -ldflags="-s -w" -o bin/gpubench ./bench/gpu

# gpu-test-binary builds the tests of device/cuda as one file for a machine with
# a card; make/gpu_check.sh runs it there, without Go.
gpu-test-binary: gpu-link
	$(GPU_ENV) go test -c -tags gpu -trimpath -ldflags="-s -w" -o bin/cuda.test ./device/cuda

# gpu-check builds and runs these tests on this machine's card.
gpu-check: gpu-test-binary
	sh make/gpu_check.sh bin/cuda.test

# gpu-kernels compiles every kernel with the run-time compilers from the wheels:
# of CUDA 13 for several architectures, of CUDA 12 for sm_70, which 13 no longer
# knows, and of CUDA 11 for three up to sm_90, its last. gpu-kernels-short leaves
# out most sizes of attention, some architectures and CUDA 11. They need no card.
# $(1) is the folder of the compiler, $(2) its version, $(3) a pattern of
# architectures, $(4) what else go test is told.
compile_kernels = TIDEMARK_NVRTC=$(2) LD_LIBRARY_PATH=$(1)/lib:$$LD_LIBRARY_PATH $(GPU_ENV) \
	go test -tags gpu -count=1 -timeout 30m $(4) -run 'TestCompileKernels/^sm_($(3))$$' ./device/cuda

# The choice among several compilers that are there.
choose_compiler = TIDEMARK_NVRTC=$(GPU_CUDA_VERSION) LD_LIBRARY_PATH=$(GPU_SDK)/lib:$(GPU_SDK)/12/lib:$$LD_LIBRARY_PATH $(GPU_ENV) \
	go test -tags gpu -count=1 -run 'TestCompilerForOldCard|TestOlderLibrary|TestLibraryForDriver' ./device/cuda

gpu-kernels: gpu-sdk gpu-sdk-12 gpu-sdk-11 gpu-link
	$(call compile_kernels,$(GPU_SDK),$(GPU_CUDA_VERSION),.*)
	$(call compile_kernels,$(GPU_SDK)/12,$(GPU_CUDA12_VERSION),70)
	$(call compile_kernels,$(GPU_SDK)/11,$(GPU_CUDA11_VERSION),70|80|90)
	$(choose_compiler)

gpu-kernels-short: gpu-sdk gpu-sdk-12 gpu-link
	$(call compile_kernels,$(GPU_SDK),$(GPU_CUDA_VERSION),.*,-short)
	$(call compile_kernels,$(GPU_SDK)/12,$(GPU_CUDA12_VERSION),70,-short)
	$(choose_compiler)

# gpu-emulate runs the tests of device/cuda on a driver that runs the kernels on
# the processor: slow, but it finds wrong arithmetic without a card.
gpu-emulate: gpu-link
	$(MAKE) -C device/cuda/internal/emulate OUT=$(GPU_SDK)/emulate CUDA_INCLUDE=$(GPU_INCLUDE)
	LD_LIBRARY_PATH=$(GPU_SDK)/emulate TIDEMARK_EMULATE=$(CURDIR)/device/cuda/internal/emulate $(GPU_ENV) \
		go test -tags gpu -count=1 -timeout 2h -skip TestCompileKernels ./device/cuda
