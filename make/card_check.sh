#!/bin/sh
# What is to be seen on a card after a change of kernels or of what a step does,
# in one call:
#
#	sh make/card_check.sh bin/cuda.test [OLD NEW]
#
# The tests run, or those that CARD_TESTS names, with what fails and how many
# passed; then bench/gpu/versions.py compares the steps of two builds of
# bench/gpu, OLD and NEW (make gpu-bench), turn by turn. Neither needs Go. Any
# file may be compressed with gzip. VERSIONS are further flags of versions.py. It
# ends with status 1 where a test fails, else 3 where a step is slower by more
# than 2 %.
set -eu

tests=${CARD_TESTS:-.}
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# unpack prints the path of a program, decompressed if it has to be.
unpack() {
	case $1 in
	*.gz)
		gzip -dc "$1" >"$work/$(basename "$1" .gz)"
		chmod +x "$work/$(basename "$1" .gz)"
		echo "$work/$(basename "$1" .gz)"
		;;
	*) echo "$(cd "$(dirname "$1")" && pwd)/$(basename "$1")" ;;
	esac
}

status=0
test=$(unpack "$1")
sh "$here/make/gpu_check.sh" "$test" -test.run "$tests" -test.skip TestCompileKernels >"$work/tests" 2>&1 || status=1
grep -v -e '^=== ' -e '--- PASS' -e '--- SKIP' "$work/tests" | tail -n 120
grep -e '^--- ' "$work/tests" || true
echo "tests: $(grep -c -e '--- PASS' "$work/tests" || true) passed, $(grep -c -e '--- FAIL' "$work/tests" || true) failed," \
	"$(grep -c -e '--- SKIP' "$work/tests" || true) skipped"

if [ $# -ge 3 ]; then
	for folder in "${CUDA_HOME:-/usr/local/cuda}/lib64" /usr/local/cuda/lib64 /opt/cuda/lib64 /usr/local/nvidia/lib64 \
		/opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib /usr/lib/python3*/site-packages/nvidia/*/lib; do
		if [ -d "$folder" ]; then
			LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
		fi
	done
	export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"
	old=$(unpack "$2")
	new=$(unpack "$3")
	python3 "$here/bench/gpu/versions.py" "$old" "$new" ${VERSIONS:-} 2>"$work/lines" || {
		slower=$?
		tail -n 5 "$work/lines"
		[ "$status" = 1 ] || status=$slower
	}
fi
exit $status
