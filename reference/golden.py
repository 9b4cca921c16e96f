"""Values in float64 on the CPU: operations with their gradients, optimizers' paths, and tiny trainings."""

import json

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

import models

ROTARY_BASE = 10000.0


def save(tensors, path):
    save_file({name: t.contiguous() for name, t in tensors.items()}, path)


def attention(q, k, v):
    """Causal attention with grouped keys and values: (batch, heads, tokens, size)."""
    group = q.shape[1] // k.shape[1]
    return F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), is_causal=True)


def rope_half(x):
    """Rotary positions in the half-rotation form: (batch, heads, tokens, size)."""
    _, _, tokens, size = x.shape
    frequencies = 1 / ROTARY_BASE ** (torch.arange(0, size, 2) / size)
    angles = torch.outer(torch.arange(tokens) * 1.0, frequencies)
    angles = torch.cat([angles, angles], -1)
    a, b = x[..., : size // 2], x[..., size // 2 :]
    return x * angles.cos() + torch.cat([-b, a], -1) * angles.sin()


def operations():
    """NAME.in.X, NAME.out, NAME.gout (the incoming gradient) and NAME.grad.X. The order of the draws is part of the record."""
    r, out = torch.randn, {}

    def op(name, f, **operands):
        operands = {k: v.clone().requires_grad_(True) if v.is_floating_point() else v for k, v in operands.items()}
        y = f(**operands)
        incoming = torch.randn_like(y) if y.dim() else torch.ones_like(y)
        differentiable = {k: v for k, v in operands.items() if v.requires_grad}
        gradients = torch.autograd.grad(y, list(differentiable.values()), incoming)
        out.update({f"{name}.in.{k}": v.detach() for k, v in operands.items()})
        out[f"{name}.out"], out[f"{name}.gout"] = y.detach(), incoming
        out.update({f"{name}.grad.{k}": g for k, g in zip(differentiable, gradients)})

    op("linear", lambda x, w, b: F.linear(x, w, b), x=r(5, 7), w=r(3, 7), b=r(3))
    op("relu", lambda x: F.relu(x), x=r(4, 9))
    op("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), x=r(4, 9) * 3)
    op("gelu_erf", lambda x: F.gelu(x), x=r(4, 9) * 3)
    op("silu", lambda x: F.silu(x), x=r(4, 9) * 3)
    op("tanh", lambda x: torch.tanh(x), x=r(4, 9))
    op("sigmoid", lambda x: torch.sigmoid(x), x=r(4, 9) * 4)
    op("swiglu", lambda g, u: F.silu(g) * u, g=r(4, 9), u=r(4, 9))
    op("layernorm", lambda x, w, b: F.layer_norm(x, (8,), w, b, 1e-5), x=r(6, 8) * 2 + 1, w=r(8), b=r(8))
    op("rmsnorm", lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, x=r(6, 8) * 2, w=r(8))
    op("softmax", lambda x: F.softmax(x, -1), x=r(5, 11) * 4)
    op("embedding", lambda ids, w: F.embedding(ids, w), ids=torch.tensor([[1, 4, 4, 0], [9, 2, 1, 1]]), w=r(10, 6))
    op("cross_entropy_ignore", lambda x, t: F.cross_entropy(x, t, ignore_index=-100), x=r(5, 11) * 4,
       t=torch.tensor([3, 0, -100, 10, 7]))
    op("cross_entropy", lambda x, t: F.cross_entropy(x, t), x=r(5, 11) * 4, t=torch.tensor([3, 0, 1, 10, 7]))
    op("mse", lambda x, t: F.mse_loss(x, t), x=r(5, 3), t=r(5, 3))
    op("attention_mha", attention, q=r(2, 3, 7, 8), k=r(2, 3, 7, 8), v=r(2, 3, 7, 8))
    op("attention_gqa", attention, q=r(2, 6, 9, 8), k=r(2, 2, 9, 8), v=r(2, 2, 9, 8))
    op("rope_half", rope_half, x=r(2, 3, 7, 8))
    return out


PATHS = [  # name, optimizer, norm to clip to, schedule
    ("sgd", lambda p: torch.optim.SGD(p, lr=0.05), None, None),
    ("sgd_momentum", lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), None, None),
    ("sgd_nesterov_wd", lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01), None, None),
    ("adam", lambda p: torch.optim.Adam(p, lr=0.01), None, None),
    ("adam_l2", lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1), None, None),
    ("adamw", lambda p: torch.optim.AdamW(p, lr=0.01), None, None),
    ("adamw_wd", lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, betas=(0.9, 0.95), eps=1e-8), None, None),
    ("adamw_amsgrad", lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True), None, None),
    ("adafactor", lambda p: torch.optim.Adafactor(p, lr=0.01), None, None),
    ("adamw_clip", lambda p: torch.optim.AdamW(p, lr=0.01), 0.5, None),
    ("adamw_cosine", lambda p: torch.optim.AdamW(p, lr=0.01), None,
     lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=20, eta_min=1e-4)),
]


def paths(steps=20):
    """opt.NAME.w1 … and opt.NAME.loss of each optimizer from opt.w0 and opt.b0."""
    w0, b0, x, y = torch.randn(6, 5), torch.randn(5), torch.randn(16, 6), torch.randn(16, 5)
    out = {"opt.w0": w0, "opt.b0": b0, "opt.X": x, "opt.Y": y}
    for name, make, clip, schedule in PATHS:
        w, b = w0.clone().requires_grad_(True), b0.clone().requires_grad_(True)
        optimizer = make([w, b])
        scheduler = schedule(optimizer) if schedule else None
        losses = []
        for i in range(steps):
            optimizer.zero_grad()
            loss = ((x @ w + b - y) ** 2).mean() + 0.1 * torch.sin(w).sum()
            loss.backward()
            if clip:
                torch.nn.utils.clip_grad_norm_([w, b], clip)
            optimizer.step()
            losses.append(loss.item())
            out[f"opt.{name}.w{i + 1}"] = w.detach().clone()
            if scheduler:
                scheduler.step()
        out[f"opt.{name}.loss"] = torch.tensor(losses)
    return out


def training(model, loss, vocabulary, rows, tokens, rate=3e-3, steps=10):
    """init.*, data, grad0.*, loss, gradnorm and final.* of a training with AdamW and clipping."""
    out = {f"init.{k}": v.detach().clone() for k, v in model.state_dict().items()}
    out["data"] = torch.randint(0, vocabulary, (steps, rows, tokens + 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.1, betas=(0.9, 0.95))
    losses, norms = [], []
    for i, ids in enumerate(out["data"]):
        value = loss(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        value.backward()
        if i == 0:
            out.update({f"grad0.{k}": p.grad.clone() for k, p in model.named_parameters()})
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        losses.append(value.item())
    out.update({f"final.{k}": v.detach().clone() for k, v in model.state_dict().items()})
    out["loss"], out["gradnorm"] = torch.tensor(losses), torch.tensor(norms)
    return out


QWEN2 = dict(hidden_size=16, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=19, tie_word_embeddings=True, rms_norm_eps=1e-6, max_position_embeddings=64,
             attn_implementation="eager")


class Inner(torch.nn.Module):
    """The model under the name m, as the recorded names have it."""

    def __init__(self, model):
        super().__init__()
        self.m = model


def record(out):
    """Writes all of it to a folder."""
    torch.manual_seed(7)
    torch.set_default_dtype(torch.float64)
    save(operations() | paths(), f"{out}/golden_ops.safetensors")
    gpt = models.GPT(19, 12, 2, 16, 4)
    save(training(gpt, gpt, 19, 3, 12), f"{out}/golden_gpt.safetensors")

    from transformers import AutoModelForCausalLM, Qwen2Config

    config = Qwen2Config(**QWEN2)
    qwen = Inner(AutoModelForCausalLM.from_config(config, dtype=torch.float64))
    with open(f"{out}/golden_qwen2_config.json", "w") as f:
        json.dump(config.to_dict(), f, default=str)

    def loss(ids, targets):
        return F.cross_entropy(qwen.m(ids, use_cache=False).logits.view(-1, 19), targets.reshape(-1))

    save(training(qwen, loss, 19, 3, 12), f"{out}/golden_qwen2.safetensors")
