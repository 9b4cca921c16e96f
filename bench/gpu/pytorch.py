"""The workloads of workloads.json in PyTorch: prints a line of JSON for each.

    python3 pytorch.py [--workloads gpt-char,gpt2s] [--precision fp32|tf32|bf16-mixed] [--compile] [--profile]

bf16-mixed is autocast with float32 weights. The optimizer is AdamW with PyTorch's
defaults for everything but the learning rate.
"""
import argparse
import gc
import json
import os
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

WARM_UP = 3


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc, self.proj = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(d, 2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.proj(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, c):
        super().__init__()
        d = c["n_embd"]
        self.tokens, self.positions = nn.Embedding(c["vocab_size"], d), nn.Embedding(c["n_ctx"], d)
        self.blocks = nn.ModuleList(Block(d, c["n_head"]) for _ in range(c["n_layer"]))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, c["vocab_size"], bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


def build(config):
    """The model and a function from it and token ids to logits."""
    if config["model_type"] == "gpt":
        return GPT(config), lambda m, ids: m(ids)
    from transformers import Qwen2Config, Qwen2ForCausalLM
    values = {k: v for k, v in config.items() if k != "model_type"}
    model = Qwen2ForCausalLM(Qwen2Config(**values, use_cache=False, attn_implementation="sdpa"))
    return model, lambda m, ids: m(input_ids=ids).logits


def measure(name, w, args):
    torch.manual_seed(1)
    with torch.device("cuda"):
        model, logits = build(w["model"])
    model.train()
    if args.compile:
        model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=args.optimizer == "adamw-fused" or None)
    vocabulary = w["model"]["vocab_size"]

    def step():
        ids = torch.randint(vocabulary, (w["batch"], w["tokens"] + 1), device="cuda")
        torch.cuda.synchronize()
        began = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16, enabled=args.precision == "bf16-mixed"):
            y = logits(model, ids[:, :-1].contiguous())
            if w["loss"] == "mean":
                loss = y.mean()
            else:
                loss = F.cross_entropy(y.reshape(-1, vocabulary), ids[:, 1:].reshape(-1))
        del y
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        torch.cuda.synchronize()
        return 1000 * (time.perf_counter() - began), value

    steps = 2 if args.profile else w["steps"]
    times = [step() for _ in range(WARM_UP)]
    torch.cuda.reset_peak_memory_stats()
    if args.profile:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
            times = [step() for _ in range(steps)]
        print(f"\n{name}, PyTorch, {args.precision}, {steps} steps", file=sys.stderr)
        rows = sorted(p.key_averages(), key=lambda e: -e.device_time_total)
        for e in rows[: args.rows]:
            print(f"{e.device_time_total / 1000:10.3f} {e.count:8d} {e.device_time_total / e.count:10.2f}  {e.key[:110]}",
                  file=sys.stderr)
    else:
        times = [step() for _ in range(steps)]
    print(json.dumps({
        "workload": name, "program": "pytorch" + ("-compiled" if args.compile else ""), "precision": args.precision, "optimizer": args.optimizer,
        "step_ms": statistics.median(t for t, _ in times), "least_ms": min(t for t, _ in times),
        "peak_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved(),
        "loss": times[-1][1]}), flush=True)


# What is generated of a workload, as in generate.go.
ROWS, PROMPT, NEW = 8, 128, 256


def generate(name, w, args):
    """transformers' generate, greedy, with its dynamic cache; the second time is measured."""
    torch.manual_seed(1)
    dtype = torch.bfloat16 if args.precision == "bf16-mixed" else torch.float32
    torch.set_default_dtype(dtype)
    with torch.device("cuda"):
        model, _ = build(w["model"])
    torch.set_default_dtype(torch.float32)
    model.eval()
    model.config.use_cache = True
    ids = torch.randint(w["model"]["vocab_size"], (ROWS, PROMPT), device="cuda")

    def run(new):
        torch.cuda.synchronize()
        began = time.perf_counter()
        with torch.no_grad():
            model.generate(ids, max_new_tokens=new, min_new_tokens=new, do_sample=False, eos_token_id=None, pad_token_id=0,
                           use_cache=True, disable_compile=True)
        torch.cuda.synchronize()
        return time.perf_counter() - began

    run(NEW)
    first, whole = run(1), run(NEW)
    print(json.dumps({
        "workload": name, "program": "pytorch", "precision": "bf16" if dtype == torch.bfloat16 else args.precision, "cache": "dynamic",
        "prefill_ms": 1000 * first, "steps_per_second": (NEW - 1) / (whole - first),
        "peak_bytes": torch.cuda.max_memory_allocated()}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workloads", default="gpt-char,gpt-char-2,gpt2s,qwen,qwen-2")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32", "bf16-mixed"])
    parser.add_argument("--optimizer", default="adamw", choices=["adamw", "adamw-fused"])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--generate", action="store_true", help="generate instead of training")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--rows", type=int, default=25)
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = args.precision == "tf32"
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "workloads.json")) as f:
        workloads = json.load(f)
    for name in args.workloads.split(","):
        (generate if args.generate else measure)(name, workloads[name], args)
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
