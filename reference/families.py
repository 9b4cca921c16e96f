"""Values of a tiny model of each family of transformers, in float32 on the CPU: weights, logits, loss and gradients.

One file has all of them: CASE.ids and CASE.targets (2, 13), or (2) where a row has one label, CASE.init.NAME, CASE.logits, CASE.loss, CASE.grad.NAME. Its
metadata has each case's config. Of those with a context for it, CASE.generated (2, 73) is what generate makes greedily of the first nine
of CASE.ids.
"""

import json

import torch
import torch.nn.functional as F

import cases

PROMPT, NEW = 9, 64


def record(out):
    import transformers
    from safetensors.torch import save_file

    tensors, configs, generated = {}, {}, {}
    for name, (kind, config) in cases.FAMILIES.items():
        torch.manual_seed(len(tensors))
        c = getattr(transformers, kind + "Config")(**config)
        classifies = name in cases.CLASSIFIERS
        auto = getattr(transformers, cases.CLASSIFIERS.get(name, "AutoModelForCausalLM"))
        # PyTorch's scaled_dot_product_attention leaves a soft cap of scores out.
        attention = "eager" if config.get("attn_logit_softcapping") else "sdpa"
        model = (auto._from_config if classifies else auto.from_config)(c, attn_implementation=attention).float().train()
        with torch.no_grad():  # so that no weight is 0 or 1, or a head's other rows alike
            for p in model.parameters():
                p.add_(0.3 * torch.randn_like(p))
        if classifies:  # a label a row
            ids, targets = cases.batch(config), torch.randint(0, config["num_labels"], (2,))
        else:
            ids, targets = (torch.randint(0, config["vocab_size"], (2, 13)) for _ in range(2))
        kept = {k: p.detach().clone() for k, p in model.named_parameters()}
        logits = model(ids).logits if classifies else model(ids, use_cache=False).logits
        loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten())
        loss.backward()
        rows = dict(ids=ids, targets=targets, logits=logits.detach(), loss=loss.detach())
        for k, p in model.named_parameters():
            rows["init." + k], rows["grad." + k] = kept[k], p.grad
        if not classifies and config["max_position_embeddings"] >= PROMPT + NEW:
            with torch.no_grad():
                for k, p in model.named_parameters():
                    p.copy_(kept[k])
            model.eval().generation_config.eos_token_id = None
            generated[f"{name}.generated"] = model.generate(ids[:, :PROMPT], attention_mask=torch.ones(2, PROMPT, dtype=torch.long), max_new_tokens=NEW, do_sample=False)
        tensors.update({f"{name}.{k}": v.contiguous() for k, v in rows.items()})
        configs[name] = dict(config, model_type=c.model_type)
        print(name, loss.item(), flush=True)
    save_file(tensors | generated, f"{out}/families.safetensors", {"configs": json.dumps(configs)})
