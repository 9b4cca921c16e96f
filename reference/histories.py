"""The allocator's histories as memory snapshots without stacks, and its statistics after each step."""

import gzip
import json
import pickle

import torch

import models

COUNTERS = ("allocated_bytes.all.current", "allocated_bytes.all.peak", "reserved_bytes.all.current", "reserved_bytes.all.peak",
            "active_bytes.all.peak", "inactive_split_bytes.all.current", "inactive_split_bytes.all.peak", "num_alloc_retries",
            "num_ooms", "segment.all.current", "requested_bytes.all.peak")


def record(name, shapes, config, settings, limit, out, device="cuda"):
    """Records a training of a GPT. The process must be new, with PYTORCH_CUDA_ALLOC_CONF set to settings."""
    torch.cuda.memory._record_memory_history(context=None, max_entries=1_000_000)
    stats, error = [], None
    try:
        if limit:
            torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
        with torch.device(device):
            model = models.GPT(**config)
        optimizer = torch.optim.AdamW(model.parameters())
        for rows, tokens in shapes:
            x = torch.randint(0, config["V"], (rows, tokens), device=device)
            y = torch.randint(0, config["V"], (rows, tokens), device=device)
            model(x, y).backward()
            optimizer.step()
            optimizer.zero_grad()
            torch.cuda.synchronize()
            counters = torch.cuda.memory_stats()
            stats.append({c: counters[c] for c in COUNTERS})
    except torch.OutOfMemoryError as e:
        error = str(e)
    write(torch.cuda.memory._snapshot(), f"{out}/{name}.pkl.gz")
    with open(f"{out}/{name}.json", "w") as f:
        json.dump({"stats": stats, "err": error, "conf": settings}, f)


def linear(with_gradients, out, device="cuda"):
    """Three forward passes of a large Linear layer, with marks of the counters after each part."""
    marks = []

    def mark(name):
        torch.cuda.synchronize()
        marks.append([name, dict(alloc=torch.cuda.memory_allocated(), res=torch.cuda.memory_reserved(),
                                 maxalloc=torch.cuda.max_memory_allocated(), maxres=torch.cuda.max_memory_reserved())])

    name = "linear_grad" if with_gradients else "linear_nograd"
    torch.cuda.memory._record_memory_history(context=None, max_entries=1_000_000)
    mark("start")
    with torch.set_grad_enabled(with_gradients):
        layer = torch.nn.Linear(10_000, 50_000, device=device)
        mark("model")
        for i in range(3):
            x = torch.randn(5_000, 10_000, device=device)
            mark(f"in{i}")
            y = layer(x)
            mark(f"out{i}")
    del layer, x, y
    mark("end")
    write(torch.cuda.memory._snapshot(), f"{out}/{name}.pkl.gz")
    return name, marks


def write(snapshot, path):
    with open(path, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as f:
        pickle.dump(snapshot, f, protocol=4)
