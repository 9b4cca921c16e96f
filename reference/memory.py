"""Peaks by phase: three training steps of a case, with the allocator's own counters."""

import gc

import torch

import models


def record(case, device="cuda", steps=3):
    """The record of a case: see README.md for its keys."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    out = dict(case, base=torch.cuda.memory_allocated())
    model = models.build(case, device)
    torch.cuda.synchronize()
    out["params"] = sum(p.numel() for p in model.parameters())
    out["model_alloc"] = torch.cuda.memory_allocated()
    optimizer = models.OPTIMIZERS[case["opt"]](model.parameters())
    loop = Loop(case, model, optimizer, device)
    out["steps"] = [loop.step() for _ in range(steps)]
    last = {name: phase for name, phase in out["steps"][-1].items() if isinstance(phase, dict)}
    out["peak"] = max(phase["peak"] for phase in last.values())
    out["peak_phase"] = max((phase["peak"], name) for name, phase in last.items())[1]
    return out


class Loop:
    """A training loop whose variables live as long as those of a user's loop: until they are assigned again."""

    def __init__(self, case, model, optimizer, device):
        self.case, self.model, self.optimizer, self.device = case, model, optimizer, device
        self.loss = self.x = self.y = None

    def step(self):
        case, phases = self.case, {}
        for micro in range(case["accum"]):
            suffix = f".{micro}" if case["accum"] > 1 else ""
            self.x, self.y = models.batch(case, self.device)
            phases["forward" + suffix] = measure(self.forward)
            phases["backward" + suffix] = measure(lambda: self.loss.backward())
        phases["optim"] = measure(self.optimizer.step)
        phases["zero"] = measure(lambda: self.optimizer.zero_grad(set_to_none=case["set_to_none"]))
        phases["loss"] = float(self.loss)
        return phases

    def forward(self):
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=self.case["amp"]):
            loss = models.loss_of(self.case, self.model, self.x, self.y)
        self.loss = loss / self.case["accum"] if self.case["accum"] > 1 else loss


def measure(phase):
    """Runs a phase: what was allocated before and after, its peak, and what is reserved, in bytes."""
    torch.cuda.synchronize()
    start = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    phase()
    torch.cuda.synchronize()
    return dict(start=start, peak=torch.cuda.max_memory_allocated(), end=torch.cuda.memory_allocated(),
                reserved=torch.cuda.memory_reserved())
