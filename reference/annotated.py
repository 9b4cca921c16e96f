"""Two training steps, allocation by allocation, each with the operation that made it."""

import gc
import gzip
import os
import re
import time

import torch

import models

COLUMNS = ("event", "phase", "bytes", "freed_at", "op", "autograd_node", "python")

# Frames of the interpreter's and PyTorch's plumbing, which say nothing about the caller.
PLUMBING = {"module.py", "annotated.py", "generic.py", "output_capturing.py", "_utils.py", "profiler.py", "_contextlib.py"}


class Marks:
    """The moments at which phases begin, in the history's clock."""

    def __init__(self):
        self.moments = []

    def begin(self, phase):
        torch.cuda.synchronize()
        self.moments.append((time.time_ns() // 1000, phase))
        time.sleep(0.0005)  # so that no two events of different phases share a microsecond

    def at(self, micros):
        phase = ""
        for began, name in self.moments:
            if micros >= began:
                phase = name
        return phase


def record(case, path, device="cuda", steps=2):
    """Writes the rows of a case to a gzipped table of tab-separated values."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.manual_seed(0)
    marks = Marks()
    torch.cuda.memory._record_memory_history(max_entries=1_000_000)
    marks.begin("build")
    model = models.build(case, device)
    optimizer = models.OPTIMIZERS[case["opt"]](model.parameters())
    for step in range(steps):
        for micro in range(case["accum"]):
            marks.begin(f"{step}.batch")
            x, y = models.batch(case, device)
            marks.begin(f"{step}.forward.{micro}")
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=case["amp"]):
                loss = models.loss_of(case, model, x, y)
            if case["accum"] > 1:
                loss = loss / case["accum"]
            marks.begin(f"{step}.backward.{micro}")
            loss.backward()
        marks.begin(f"{step}.optim")
        optimizer.step()
        marks.begin(f"{step}.zero")
        optimizer.zero_grad()
    marks.begin("end")
    history = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    # mtime 0: equal recordings are equal files.
    with open(path, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as f:
        for row in [COLUMNS, *rows(history, marks)]:
            f.write(("\t".join(map(str, row)) + "\n").encode())


def rows(history, marks):
    """A row an allocation. A negative size is the freeing of a block from before the history."""
    table, live = [], {}
    for i, event in enumerate(history):
        if event["action"] == "alloc":
            frames = event.get("frames", [])
            row = [i, marks.at(event["time_us"]), event["size"], "", operation(frames), autograd_node(frames), callers(frames)]
            table.append(row)
            live[event["addr"]] = row
        elif event["action"] == "free_requested":
            row = live.pop(event["addr"], None)
            if row:
                row[3] = i
            else:
                table.append([i, marks.at(event["time_us"]), -event["size"], i, "free of an earlier block", "", ""])
    return table


def operation(frames):
    """The innermost aten operation."""
    for frame in frames:
        m = re.match(r"at::_ops::(\w+)::(call|redispatch)", frame["name"])
        if m:
            return m.group(1)
    return ""


def autograd_node(frames):
    for frame in frames:
        m = re.search(r"torch::autograd::(?:generated::)?(\w+Backward\w*|AccumulateGrad|\w*Node)::", frame["name"])
        if m:
            return m.group(1)
    return ""


def callers(frames):
    """The four innermost Python functions that say something."""
    names = []
    for frame in frames:
        file = os.path.basename(frame["filename"])
        if file.endswith(".py") and file not in PLUMBING:
            names.append(f"{file}:{frame['name']}:{frame['line']}")
    return " < ".join(names[:4])
