# What PyTorch makes and drops in attention by plain operations, forward and backward, on the CPU: for each case the sizes in bytes
# of new storages ("+ bytes") and the ends of them ("- number"), from the product that gives queries, keys and values to the one
# after attention. Without the mask's operations, and with the sum of scores and mask in place as it is outside of a
# TorchDispatchMode. Prints math_attention.json.
import json
import weakref

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MASK = ("ones", "tril", "scalar_tensor", "where")


class Trace(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.live, self.log, self.number, self.on = {}, [], 0, False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = str(func).split(".")[1]
        for x in tree_leaves(out):
            if not isinstance(x, torch.Tensor) or x.untyped_storage()._cdata in self.live:
                continue
            s = x.untyped_storage()
            if not self.on or name in MASK or (name == "add" and x.dim() == 4):
                if name == "add" and x.dim() == 4 and self.on:  # in place: it is the scores from here on
                    old = self.live[args[0].untyped_storage()._cdata]
                    self.moved.add(old)
                    self.live[s._cdata] = old
                    weakref.finalize(s, self.end, s._cdata, old, True)
                else:  # of no interest, and views of it neither
                    self.live[s._cdata] = -1
                    weakref.finalize(s, self.live.pop, s._cdata, None)
                continue
            self.live[s._cdata] = self.number
            self.log.append("+ %d" % s.nbytes())
            weakref.finalize(s, self.end, s._cdata, self.number, False)
            self.number += 1
        return out

    moved = set()

    def end(self, key, number, last):
        self.live.pop(key, None)
        if last or number not in self.moved:
            self.log.append("- %d" % number)


class Mark(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, trace, on):
        ctx.trace, ctx.on = trace, on
        trace.on = on
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        ctx.trace.on = not ctx.on
        return g, None, None


def case(rows, heads, size, dropout, tokens=8):
    torch.manual_seed(0)
    width, trace = heads * size, Trace()
    trace.moved = set()
    qkv = torch.nn.Linear(width, 3 * width)
    x = torch.randn(rows, tokens, width)
    with sdpa_kernel(SDPBackend.MATH), trace:
        y = Mark.apply(qkv(x), trace, True)
        q, k, v = [t.view(rows, tokens, heads, size).transpose(1, 2) for t in y.split(width, dim=2)]
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        y = y.transpose(1, 2).contiguous().view(rows, tokens, width)
        del q, k, v
        y = Mark.apply(y, trace, False) * torch.ones_like(y, requires_grad=True)  # keeps it for backward, as a Linear does
        y.sum().backward()
    return dict(rows=rows, heads=heads, size=size, tokens=tokens, events=trace.log)


print(json.dumps(dict(torch=torch.__version__, cases=[case(*c) for c in ((3, 2, 6, 0.0), (3, 5, 3, 0.0), (1, 2, 6, 0.0), (2, 3, 10, 0.0))])))
