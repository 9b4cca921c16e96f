"""The models that are recorded: small ones written out, and those of transformers."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """A pre-norm transformer block. x: (batch, tokens, width)."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln2 = nn.LayerNorm(width)
        self.fc = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.ln1(x)).split(width, dim=2)
        q, k, v = [t.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v)]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).contiguous().view(batch, tokens, width))
        return x + self.fc2(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    """A GPT with learned positions and an untied head; its call gives the cross-entropy."""

    def __init__(self, V, T, L, d, h, checkpointing=False):
        super().__init__()
        self.checkpointing = checkpointing
        self.wte = nn.Embedding(V, d)
        self.wpe = nn.Embedding(T, d)
        self.blocks = nn.ModuleList([Block(d, h) for _ in range(L)])
        self.lnf = nn.LayerNorm(d)
        self.head = nn.Linear(d, V, bias=False)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x)
        logits = self.head(self.lnf(x))
        return F.cross_entropy(logits.view(-1, self.head.out_features), targets.reshape(-1))


class MLP(nn.Module):
    """Linear layers with ReLU between them; its call gives the cross-entropy."""

    def __init__(self, dims):
        super().__init__()
        self.l = nn.ModuleList([nn.Linear(a, b) for a, b in zip(dims[:-1], dims[1:])])

    def forward(self, x, targets):
        for i, layer in enumerate(self.l):
            x = layer(x)
            if i < len(self.l) - 1:
                x = F.relu(x)
        return F.cross_entropy(x, targets)


def transformers_model(kind, config, device, dtype=torch.float32, checkpointing=False):
    """A causal language model of transformers, such as Qwen2, with random weights."""
    import transformers

    with torch.device(device):
        c = getattr(transformers, kind + "Config")(**config)
        model = transformers.AutoModelForCausalLM.from_config(c, dtype=dtype)
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.train()


def build(case, device):
    """The model of a case, on a device, in the case's element type."""
    kind, config = case["kind"], case["cfg"]
    checkpointing = case.get("ckpt", False)
    if kind == "mlp":
        model = MLP(config["dims"]).to(device)
    elif kind == "gpt":
        with torch.device(device):
            model = GPT(**config, checkpointing=checkpointing)
    else:
        model = transformers_model(kind, config, device, checkpointing=checkpointing)
    if case.get("bf16"):
        model = model.to(torch.bfloat16)
    return model.train()


def batch(case, device):
    """A random batch of a case: inputs and targets."""
    config, rows = case["cfg"], case["batch"]
    if case["kind"] == "mlp":
        return torch.randn(rows, config["dims"][0], device=device), torch.randint(0, config["dims"][-1], (rows,), device=device)
    vocabulary = config.get("V") or config.get("vocab_size") or 50257
    shape = (rows, case["seq"])
    return torch.randint(0, vocabulary, shape, device=device), torch.randint(0, vocabulary, shape, device=device)


def loss_of(case, model, x, y):
    """The loss, as the case's loop computes it."""
    if case["kind"] in ("mlp", "gpt"):
        return model(x, y)
    if case.get("loss", "ce") == "mean":
        return model(x).logits.mean()
    return model(x, labels=y, use_cache=False).loss


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-3),
    "sgdm": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-4),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-4),
    "adamw-fused": lambda p: torch.optim.AdamW(p, lr=1e-4, fused=True),
    "adamw-loop": lambda p: torch.optim.AdamW(p, lr=1e-4, foreach=False, fused=False),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=1e-4),
}
