"""Times the snapshot commands on a large file beside Python's pickle.load.

Usage: large.py --program bin/tidemark [--events 1500000] [--file F] [--ptmem PTMEM]

Writes a snapshot as PyTorch does (protocol 4, a list of frames for each entry,
which refers to frames that repeat), unless F exists, and prints the time and
the most memory of each program.
"""

import argparse
import heapq
import os
import pickle
import random
import subprocess
import sys
import time

MIB = 1 << 20


def snapshot(events):
    """A history of blocks of 20 MiB of which some hundreds live at a time."""
    random.seed(1)
    site = "/usr/lib/python3.12/site-packages/torch/nn/modules/m%d.py"
    frames = [{"filename": site % (i % 40) if i % 3 else "/srv/app/f%d.py" % (i % 17), "line": i, "name": "forward%d" % (i % 50)}
              for i in range(400)]
    stacks = [[random.choice(frames) for _ in range(random.randrange(8, 32))] for _ in range(3000)]
    trace, live, free, top, now = [], [], [], 1 << 46, 1700000000000000

    def entry(action, addr, size):
        # A new string and a new list each time, as PyTorch makes them.
        trace.append({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": now, "compile_context": "".join(["N/", "A"]),
                      "user_metadata": "", "frames": list(random.choice(stacks))})

    segments = []
    while len(trace) < events:
        now += 7
        if len(live) < 200 or len(live) < 800 and random.random() < 0.5:
            if not free:
                segments.append(top)
                free.append(top)
                entry("segment_alloc", top, 20 * MIB)
                top += 20 * MIB
            addr, size = heapq.heappop(free), 20 * MIB - 512 * random.randrange(2000)
            entry("alloc", addr, size)
            live.append((addr, size, trace[-1]["frames"]))
        else:
            i = random.randrange(len(live))
            live[i], live[-1] = live[-1], live[i]
            addr, size, _ = live.pop()
            entry("free_requested", addr, size)
            entry("free_completed", addr, size)
            heapq.heappush(free, addr)
    held = {addr: (size, stack) for addr, size, stack in live}
    return {"segments": [segment(addr, held.get(addr)) for addr in segments], "device_traces": [trace],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
                                   "expandable_segments": False}, "external_annotations": []}


def segment(addr, block):
    size, stack = block or (0, [])
    used = 20 * MIB if block else 0
    return {"device": 0, "address": addr, "total_size": 20 * MIB, "allocated_size": used, "active_size": used, "requested_size": size,
            "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
            "blocks": [{"address": addr, "size": 20 * MIB, "requested_size": size,
                        "state": "active_allocated" if block else "inactive", "frames": stack}]}


def measure(name, command):
    began = time.time()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.time() - began
    print(f"{name:<16}{seconds:7.2f} s{usage.ru_maxrss / 1024:8.0f} MiB" + ("" if status == 0 else f"  status {status}"), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="bin/tidemark")
    parser.add_argument("--events", type=int, default=1_500_000)
    parser.add_argument("--file", default="large.pickle")
    parser.add_argument("--ptmem", help="ptmem's program, to time its summary too")
    parser.add_argument("--write", action="store_true", help="write the file and do no more")
    args = parser.parse_args()
    if args.write:
        with open(args.file, "wb") as f:
            pickle.dump(snapshot(args.events), f, protocol=4)
        return
    if not os.path.exists(args.file):
        # In a process of its own: a child's most memory counts from its parent's.
        subprocess.run([sys.executable, __file__, "--write", "--events", str(args.events), "--file", args.file], check=True)
    print(f"{args.file}: {os.path.getsize(args.file) / 1e6:.0f} MB")
    measure("pickle.load", [sys.executable, "-c", "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))", args.file])
    measure("stat", [args.program, "snapshot", "stat", args.file])
    measure("replay --check", [args.program, "snapshot", "replay", "--check", args.file])
    measure("explain", [args.program, "snapshot", "explain", args.file])
    if args.ptmem:
        measure("ptmem --summary", [args.ptmem, "--summary", args.file])


if __name__ == "__main__":
    main()
