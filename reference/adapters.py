"""Ten steps of peft's LoRA on a tiny Llama, in float32 on the CPU: what it begins with, losses, and the adapters at the end.

init.NAME are all parameters by their names in the model (of adapters: within it, base_layer and default left in), data
(10, 3, 13) the tokens of each step, loss (10), saved.NAME what save_pretrained writes. The metadata has the configs.
"""

import json
import tempfile

import torch

import cases

STEPS, ROWS, TOKENS = 10, 3, 12


def record(out):
    import peft
    import transformers
    from safetensors.torch import load_file, save_file

    kind, config = cases.ADAPTED
    torch.manual_seed(7)
    c = getattr(transformers, kind + "Config")(**config)
    model = transformers.AutoModelForCausalLM.from_config(c).float()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    model = peft.get_peft_model(model, peft.LoraConfig(**cases.ADAPTER)).train()
    rows = {"init." + n.removeprefix("base_model.model."): p.detach().clone() for n, p in model.named_parameters()}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2, weight_decay=0.1)
    data = torch.randint(0, config["vocab_size"], (STEPS, ROWS, TOKENS + 1))
    losses = []
    for batch in data:
        logits = model(input_ids=batch[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    with tempfile.TemporaryDirectory() as d:
        model.save_pretrained(d)
        saved = load_file(f"{d}/adapter_model.safetensors")
    rows |= {"saved." + k: v for k, v in saved.items()} | dict(data=data, loss=torch.tensor(losses, dtype=torch.float64))
    print("adapters", losses[0], losses[-1], "peft", peft.__version__, flush=True)
    save_file({k: v.contiguous() for k, v in rows.items()}, f"{out}/adapters.safetensors",
              {"config": json.dumps(dict(config, model_type=c.model_type)), "adapter": json.dumps(cases.ADAPTER)})
