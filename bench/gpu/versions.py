"""Compares the steps of two builds of bench/gpu on this machine's card, turn by turn.

    python3 bench/gpu/versions.py OLD NEW [--rounds 3] [--workloads gpt2s,qwen2.5-0.5b] [--most 0.02]

Each round runs every workload in both precisions with the old and then with the new
program, and the next round the other way round. The table has the medians over the
rounds of each run's median step, and the new as a part of the old. It ends with
status 3 where a step became slower by more than --most.
"""
import argparse
import json
import statistics
import subprocess
import sys

parser = argparse.ArgumentParser()
parser.add_argument("old")
parser.add_argument("new")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--workloads", default="gpt2s,qwen2.5-0.5b")
parser.add_argument("--precisions", default="fp32,bf16-mixed",
                    help="with commas; OLD:NEW where the old program has another name for it, as in bf16:bf16-mixed")
parser.add_argument("--optimizer", default="adamw-fused")
parser.add_argument("--most", type=float, default=0.02)
args = parser.parse_args()

found = {}  # (workload, precision, program) to measurements
for turn in range(args.rounds):
    for precision in args.precisions.split(","):
        for program in [args.old, args.new][:: 1 if turn % 2 == 0 else -1]:
            done = subprocess.run(
                [program, "-workloads", args.workloads, "-precision", precision.split(":")[0 if program == args.old else -1],
                 "-optimizer", args.optimizer],
                stdout=subprocess.PIPE, text=True)
            if done.returncode:
                sys.exit(f"{program} ended with status {done.returncode}")
            for line in done.stdout.splitlines():
                m = json.loads(line)
                print(line, file=sys.stderr)
                found.setdefault((m["workload"], precision, program), []).append(m)

slower = False
print(f"{'workload':16} {'precision':10} {'old ms':>9} {'new ms':>9} {'new/old':>8} {'peak bytes old':>15} {'new':>15}   "
      f"({args.rounds} rounds, {args.optimizer}, least step of all rounds in brackets)")
for workload in args.workloads.split(","):
    for precision in args.precisions.split(","):
        old, new = (found[workload, precision, p] for p in (args.old, args.new))
        ms = [statistics.median(m["step_ms"] for m in ms) for ms in (old, new)]
        least = [min(m["least_ms"] for m in ms) for ms in (old, new)]
        slower |= ms[1] > ms[0] * (1 + args.most)
        print(f"{workload:16} {precision.split(':')[-1]:10} {ms[0]:9.2f} {ms[1]:9.2f} {ms[1] / ms[0]:8.4f} {old[0]['peak_bytes']:15,} {new[0]['peak_bytes']:15,}"
              f"   [{least[0]:.2f} {least[1]:.2f} {least[1] / least[0]:.4f}]")
sys.exit(3 if slower else 0)
