#!/bin/sh
# Runs every fuzz target of the module for a time each, with minimisation
# bounded, since it otherwise takes most of the time:
#
#	sh make/fuzz.sh 2m
set -eu

time=$1
go=${GO:-go}
cd "$(dirname "$0")/.."
grep -rl '^func Fuzz' --include='*_test.go' . | sort | while read -r file; do
	sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file" | while read -r target; do
		echo "$(dirname "$file") $target"
		"$go" test "$(dirname "$file")" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 5x </dev/null
	done
done
