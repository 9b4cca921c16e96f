# The GPU build. Needs a C compiler, and CUDA's headers: from CUDA_HOME, from
# the usual places, or from NVIDIA's Python wheels (make gpu-sdk). Neither a
# card nor CUDA's libraries are needed to build: the program opens them when it
# is asked for a cuda device.

GPU_SDK := $(CURDIR)/.gpu-sdk
GPU_CUDA_VERSION ?= 13.0
# The last CUDA 12, for the oldest cards and for compiling with its headers.
GPU_CUDA12_VERSION ?= 12.9
PYTHON ?= python3

CUDA_INCLUDE ?= $(firstword $(foreach d,$(CUDA_HOME) $(CUDA_PATH) /usr/local/cuda /opt/cuda $(GPU_SDK),$(if $(wildcard $(d)/include/nvrtc.h),$(d)/include)))

GPU_ENV = CGO_ENABLED=1 \
	CGO_CFLAGS="-O2 -I$(CURDIR)/device/cuda/include -I$(CUDA_INCLUDE)" \
	CGO_LDFLAGS="-L$(GPU_SDK)/link"

GPU_LINK = $(GPU_SDK)/link/libcuda.a $(GPU_SDK)/link/libnvrtc.a

# gpu-sdk fetches CUDA's headers and the run-time compiler into .gpu-sdk.
.PHONY: gpu-sdk gpu-sdk-12 gpu-headers gpu gpu-vet gpu-bench gpu-test-binary gpu-check gpu-kernels gpu-kernels-short gpu-emulate
gpu-sdk: $(GPU_SDK)/include/nvrtc.h

$(GPU_SDK)/include/nvrtc.h: make/gpu_sdk.py
	$(PYTHON) make/gpu_sdk.py --out $(GPU_SDK) --version $(GPU_CUDA_VERSION)

gpu-sdk-12: $(GPU_SDK)/12/include/nvrtc.h

$(GPU_SDK)/12/include/nvrtc.h: make/gpu_sdk.py
	$(PYTHON) make/gpu_sdk.py --out $(GPU_SDK)/12 --version $(GPU_CUDA12_VERSION)

gpu-headers:
	@test -n "$(CUDA_INCLUDE)" || { echo "no CUDA headers: set CUDA_HOME, or run make gpu-sdk" >&2; exit 1; }

# What stands in for the libraries at link time; see device/cuda/internal/genload.
$(GPU_SDK)/link/libcuda.a: device/cuda/internal/genload/main.go | gpu-headers
	@mkdir -p $(@D) && echo '*' >$(GPU_SDK)/.gitignore
	go run ./device/cuda/internal/genload -library cuda -prefix cu -error 500 $(CUDA_INCLUDE)/cuda.h >$(@D)/cuda.S
	cd $(@D) && $(CC) -c cuda.S -o cuda.o && rm -f $@ && $(AR) rcs $@ cuda.o

$(GPU_SDK)/link/libnvrtc.a: device/cuda/internal/genload/main.go | gpu-headers
	@mkdir -p $(@D) && echo '*' >$(GPU_SDK)/.gitignore
	go run ./device/cuda/internal/genload -library nvrtc -prefix nvrtc -error 11 $(CUDA_INCLUDE)/nvrtc.h >$(@D)/nvrtc.S
	cd $(@D) && $(CC) -c nvrtc.S -o nvrtc.o && rm -f $@ && $(AR) rcs $@ nvrtc.o

# gpu builds the program with the cuda device in it.
gpu: $(GPU_LINK)
	$(GPU_ENV) go build -tags gpu -trimpath -ldflags="-s -w" -o bin/tidemark ./cmd/tidemark

gpu-vet: $(GPU_LINK)
	$(GPU_ENV) go vet -tags gpu ./device/cuda/... ./cmd/tidemark ./bench/gpu

# gpu-bench builds what bench/gpu/compare.py runs beside PyTorch.
gpu-bench: $(GPU_LINK)
	$(GPU_ENV) go build -tags gpu -trimpath -ldflags="-s -w" -o bin/gpubench ./bench/gpu

# gpu-test-binary builds the tests of device/cuda as one file for a machine with
# a card; make/gpu_check.sh runs it there, without Go.
gpu-test-binary: bin/cuda.test
bin/cuda.test: $(GPU_LINK) $(wildcard device/cuda/*.go device/cuda/kernels/* device/cuda/include/*)
	$(GPU_ENV) go test -c -tags gpu -trimpath -ldflags="-s -w" -o $@ ./device/cuda

# gpu-check builds and runs these tests on this machine's card.
gpu-check: bin/cuda.test
	sh make/gpu_check.sh bin/cuda.test

# gpu-kernels compiles every kernel for several architectures with the run-time
# compiler from the wheels, and gpu-kernels-short all but most sizes of attention
# for fewer. They need no card.
gpu-kernels: $(GPU_LINK) gpu-sdk
	LD_LIBRARY_PATH=$(GPU_SDK)/lib:$$LD_LIBRARY_PATH $(GPU_ENV) \
		 go test -tags gpu -count=1 -timeout 30m -run 'TestCompileKernels' ./device/cuda

gpu-kernels-short: $(GPU_LINK) gpu-sdk
	LD_LIBRARY_PATH=$(GPU_SDK)/lib:$$LD_LIBRARY_PATH $(GPU_ENV) \
		 go test -tags gpu -short -count=1 -timeout 10m -run 'TestCompileKernels' ./device/cuda

# gpu-emulate runs the tests of device/cuda on a driver that runs the kernels on
# the processor: slow, but it finds wrong arithmetic without a card.
gpu-emulate: $(GPU_LINK)
	$(MAKE) -C device/cuda/internal/emulate OUT=$(GPU_SDK)/emulate CUDA_INCLUDE=$(CUDA_INCLUDE)
	LD_LIBRARY_PATH=$(GPU_SDK)/emulate TIDEMARK_EMULATE=$(CURDIR)/device/cuda/internal/emulate $(GPU_ENV) \
		go test -tags gpu -count=1 -timeout 30m -skip TestCompileKernels ./device/cuda
