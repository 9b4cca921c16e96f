"""Compares tidemark with PyTorch on this machine's card, turn by turn.

    go build -tags gpu -o bin/gpubench ./bench/gpu    (see docs/gpu.md)
    python3 bench/gpu/compare.py --program bin/gpubench [--rounds 3] [--precision fp32] [--compile]

Each round runs every workload in tidemark and then in PyTorch, in processes of
their own. The table has the medians over the rounds, and tidemark's as a part
of PyTorch's.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{command[0]} ended with status {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="bin/gpubench")
    parser.add_argument("--workloads", default="gpt-char,gpt-char-2,gpt2s,qwen,qwen-2")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="PyTorch with torch.compile beside eager mode")
    parser.add_argument("--json", help="file for every measurement")
    args = parser.parse_args()
    common = ["--workloads", args.workloads, "--precision", args.precision]
    programs = [[args.program, *common], [sys.executable, os.path.join(HERE, "pytorch.py"), *common]]
    if args.compile:
        programs.append(programs[1] + ["--compile"])
    found = []
    for _ in range(args.rounds):
        for p in programs:
            found += run(p)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(found, f, indent=1)

    def median(workload, program, key):
        return statistics.median(m[key] for m in found if m["workload"] == workload and m["program"] == program)

    peers = [p for p in ("pytorch", "pytorch-compiled") if any(m["program"] == p for m in found)]
    print(f"{'workload':12} {'program':17} {'step ms':>9} {'of it':>6} {'peak GB':>8} {'of it':>6}   ({args.precision}, {args.rounds} rounds)")
    for w in args.workloads.split(","):
        ms, peak = median(w, "tidemark", "step_ms"), median(w, "tidemark", "peak_bytes")
        print(f"{w:12} {'tidemark':17} {ms:9.2f} {'':6} {peak / 1e9:8.2f}")
        for p in peers:
            a, b = median(w, p, "step_ms"), median(w, p, "peak_bytes")
            print(f"{w:12} {p:17} {a:9.2f} {ms / a:6.2f} {b / 1e9:8.2f} {peak / b:6.2f}")


if __name__ == "__main__":
    main()
