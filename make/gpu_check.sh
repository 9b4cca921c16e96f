#!/bin/sh
# Runs the tests of device/cuda on a machine with a card, which needs neither Go
# nor a compiler, but this folder's files:
#
#	sh make/gpu_check.sh bin/cuda.test [test flags]
#
# CUDA's libraries are looked for where the loader looks, then in the usual
# places and in Python environments. With GPU_SANITIZER=memcheck, or another of
# its tools, the tests run under compute-sanitizer.
set -eu

binary=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
shift
for folder in "${CUDA_HOME:-/usr/local/cuda}/lib64" /usr/local/cuda/lib64 /opt/cuda/lib64 /usr/local/nvidia/lib64 \
	/opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib /usr/lib/python3*/site-packages/nvidia/*/lib; do
	if [ -d "$folder" ]; then
		LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
	fi
done
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"
echo "libraries: $LD_LIBRARY_PATH"
nvidia-smi -L || true
cd "$(dirname "$0")/../device/cuda"
set -- "$binary" -test.v -test.timeout 9m "$@"
if [ -n "${GPU_SANITIZER:-}" ]; then
	set -- compute-sanitizer --tool "$GPU_SANITIZER" --error-exitcode 9 "$@"
fi
exec "$@"
