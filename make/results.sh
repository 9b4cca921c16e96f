#!/bin/sh
# Runs the scenarios of docs/results on a card and keeps each report.json.
# usage: results.sh PROGRAM FOLDER [NAME ...]
# A NAME is a scenario, or a scenario with -bf16-mixed; all by default, in an order in
# which the longest comes last. On an H200 they took, in seconds: linear 2,
# peak-shift 7, peak-shift-bf16-mixed 3, optimizers 6, checkpointing 18,
# checkpointing-bf16-mixed 7, caching 20, accumulation 70.
set -u
[ $# -ge 2 ] || { echo "usage: $0 PROGRAM FOLDER [NAME ...]" >&2; exit 1; }
program=$1 folder=$2
shift 2
[ $# -gt 0 ] || set -- linear peak-shift peak-shift-bf16-mixed optimizers checkpointing checkpointing-bf16-mixed caching accumulation
mkdir -p "$folder" || exit 1
day=$(date -u +%F)
card=$("$program" environment --json | sed -n 's/^ *"name": "NVIDIA \([^"]*\)".*/\1/p' | head -n 1 | tr 'A-Z ' 'a-z-')
status=0
for name in "$@"; do
	scenario=${name%-bf16-mixed}
	set --
	[ "$scenario" = "$name" ] || set -- --precision bf16-mixed
	began=$(date +%s)
	"$program" run "$scenario" --device cuda "$@" --out "$folder/$name" --force >"$folder/$name.txt"
	code=$?
	echo "$name: status $code after $(($(date +%s) - began)) s"
	# 3 says that a check does not hold: such a report is kept, too.
	case $code in
	0 | 3) cp "$folder/$name/report.json" "$folder/${card:-card}-$day-$name.json" ;;
	esac
	[ "$code" = 0 ] || status=$code
done
exit $status
