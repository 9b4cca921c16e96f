"""Makes golden_qwen2_float64.safetensors: the training of golden_qwen2 with everything in float64.

Transformers computes RMSNorm and the rotary tables in float32 even in a float64 model, so golden_qwen2 carries roundings
of 6e-8. This script runs the same ten steps with norms and tables that keep the model's element type, and writes what it
computed under the same names.

    python3 golden_float64.py golden_qwen2.safetensors golden_qwen2_config.json golden_qwen2_float64.safetensors
"""

import json
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.models.qwen2 import modeling_qwen2

source, config, target = sys.argv[1:]


def forward(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def tables(self, x, position_ids):
    size = x.shape[-1] // 4  # four heads
    frequencies = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angles = position_ids[..., None].double() * frequencies
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


original = modeling_qwen2.Qwen2RMSNorm.forward, modeling_qwen2.Qwen2RotaryEmbedding.forward


def run(norm, rotary):
    modeling_qwen2.Qwen2RMSNorm.forward = norm
    modeling_qwen2.Qwen2RotaryEmbedding.forward = rotary
    golden = load_file(source)
    c = json.load(open(config))
    c.pop("dtype", None)
    torch.set_default_dtype(torch.float64)
    model = Qwen2ForCausalLM(Qwen2Config(**c, attn_implementation="sdpa")).double()
    model.load_state_dict({k.removeprefix("init.m."): v for k, v in golden.items() if k.startswith("init.m.")}, strict=False)
    model.tie_weights()
    out = {}
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1, betas=(0.9, 0.95))
    losses, norms = [], []
    for i, batch in enumerate(golden["data"]):
        logits = model(batch[:, :-1], use_cache=False).logits
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        if i == 0:
            for k, p in model.named_parameters():
                out["grad0.m." + k] = p.grad.clone()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
    for k, p in model.named_parameters():
        out["final.m." + k] = p.detach().clone()
    out["loss"] = torch.tensor(losses)
    out["gradnorm"] = torch.tensor(norms)
    worst = max((out[k] - golden[k]).abs().max().item() for k in out if k in golden)
    return out, worst


_, worst = run(*original)
print("as transformers has it: largest difference from", source, worst)
out, worst = run(forward, tables)
print("in float64: largest difference from", source, worst)
save_file({k: v.contiguous() for k, v in out.items()}, target)
