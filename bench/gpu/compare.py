"""Compares tidemark with PyTorch on this machine's card, turn by turn.

    go build -tags gpu -o bin/gpubench ./bench/gpu    (see docs/gpu.md)
    python3 bench/gpu/compare.py --program bin/gpubench [--rounds 3] [--precision fp32] [--optimizer adamw] [--compile]

Each round runs every workload in tidemark and then in PyTorch, in processes of
their own. The table has the medians over the rounds, tidemark's as a part of
PyTorch's, and the step with a recorder as a part of that without. A workload
that torch.compile cannot run is left out for it.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def run(command, may_fail=False):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode and not may_fail:
        sys.exit(f"{command[0]} ended with status {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="bin/gpubench")
    parser.add_argument("--workloads", default="gpt-char,gpt-char-2,gpt2s,qwen,qwen-2")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32", "bf16-mixed"])
    parser.add_argument("--optimizer", default="adamw", choices=["adamw", "adamw-fused"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="PyTorch with torch.compile beside eager mode")
    parser.add_argument("--json", help="file for every measurement")
    args = parser.parse_args()
    workloads = args.workloads.split(",")
    common = ["--precision", args.precision, "--optimizer", args.optimizer]
    peer = [sys.executable, os.path.join(HERE, "pytorch.py"), *common]
    found, compiled = [], workloads if args.compile else []
    for _ in range(args.rounds):
        for p in [args.program, *common], peer:
            found += run([*p, "--workloads", args.workloads])
        for w in list(compiled):
            lines = run([*peer, "--compile", "--workloads", w], may_fail=True)
            found += lines
            if not lines:  # nor will it in the next round
                print(f"torch.compile cannot run {w}", file=sys.stderr)
                compiled = [c for c in compiled if c != w]
    if args.json:
        with open(args.json, "w") as f:
            json.dump(found, f, indent=1)

    def median(workload, program, key):
        return statistics.median(m[key] for m in found if m["workload"] == workload and m["program"] == program)

    print(f"{'workload':12} {'program':17} {'step ms':>9} {'of it':>6} {'peak GB':>8} {'of it':>6} {'recorded':>8}"
          f"   ({args.precision}, {args.optimizer}, {args.rounds} rounds)")
    for w in workloads:
        ms, peak = median(w, "tidemark", "step_ms"), median(w, "tidemark", "peak_bytes")
        ratios = [m["recorded_ms"] / m["step_ms"] for m in found
                  if m["workload"] == w and m["program"] == "tidemark" and m["recorded_ms"]]
        recorded = f"{statistics.median(ratios):8.3f}" if ratios else "-"
        print(f"{w:12} {'tidemark':17} {ms:9.2f} {'':6} {peak / 1e9:8.2f} {'':6} {recorded:>8}")
        for p in ("pytorch", "pytorch-compiled"):
            if not any(m["workload"] == w and m["program"] == p for m in found):
                continue
            a, b = median(w, p, "step_ms"), median(w, p, "peak_bytes")
            print(f"{w:12} {p:17} {a:9.2f} {ms / a:6.2f} {b / 1e9:8.2f} {peak / b:6.2f}")


if __name__ == "__main__":
    main()
