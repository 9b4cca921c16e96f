# Makes small random configs of each family, builds transformers' models on the CPU and writes what Go's models are compared with:
# parameters, modules by path and type, and the elements of every module's output that forward hooks count over one forward
# pass with labels. Needs PyTorch and transformers:
#   python transformers_models.py transformers_models.json.gz
import gzip
import json
import random
import sys

import torch
import transformers as tf


def gpt2(r):
    heads = r.choice([1, 2, 3, 5])
    c = dict(vocab_size=r.randint(7, 60), n_positions=r.randint(8, 40), n_layer=r.randint(1, 3), n_head=heads, n_embd=heads * r.choice([3, 4, 6, 8]),
             activation_function=r.choice(["gelu_new", "gelu_pytorch_tanh", "gelu", "relu", "silu", "swish", "tanh", "sigmoid"]))
    for k, v in (("n_inner", r.randint(5, 50)), ("resid_pdrop", 0.0), ("embd_pdrop", 0.2), ("attn_pdrop", 0.0), ("tie_word_embeddings", False),
                 ("use_cache", False), ("layer_norm_epsilon", 1e-4)):
        if r.random() < 0.4:
            c[k] = v
    return tf.GPT2Config, c


def llama(r, qwen=False):
    kv, size = r.choice([1, 2, 3]), r.choice([2, 4, 6, 8])
    heads = kv * r.choice([1, 2, 3])
    c = dict(vocab_size=r.randint(7, 60), hidden_size=heads * size, intermediate_size=r.randint(5, 50), num_hidden_layers=r.randint(1, 3),
             num_attention_heads=heads, num_key_value_heads=kv, max_position_embeddings=r.randint(16, 64), tie_word_embeddings=r.random() < 0.5,
             hidden_act=r.choice(["silu", "swish"]))
    if r.random() < 0.4:
        c["head_dim"] = r.choice([2, 4, 10])
    if r.random() < 0.3:
        c["use_cache"] = False
    if r.random() < 0.3:
        c["rope_parameters"] = dict(rope_type="linear", factor=2.0, rope_theta=1e5)
    if qwen:
        if r.random() < 0.5:
            c.update(use_sliding_window=True, max_window_layers=c["num_hidden_layers"] + r.randint(0, 2))
        return tf.Qwen2Config, c
    for k in ("attention_bias", "mlp_bias"):
        if r.random() < 0.4:
            c[k] = True
    return tf.LlamaConfig, c


def later(cls):
    """A family whose configs have llama's keys."""

    def make(r):
        c = llama(r, True)[1]
        c = {k: v for k, v in c.items() if k not in ("use_sliding_window", "max_window_layers")}
        if cls is tf.Phi3Config:
            c.pop("head_dim", None)  # it has none of its own
            c.pop("rope_parameters", None)
            c["pad_token_id"] = 0
        return cls, c

    return make


def neox(r):
    heads = r.choice([1, 2, 3])
    c = dict(vocab_size=r.randint(7, 60), hidden_size=heads * 8, intermediate_size=r.randint(5, 50), num_hidden_layers=r.randint(1, 3),
             num_attention_heads=heads, max_position_embeddings=r.randint(16, 64), hidden_act=r.choice(["gelu", "relu", "gelu_new"]))
    for k, v in (("use_parallel_residual", False), ("attention_bias", False), ("hidden_dropout", 0.1), ("tie_word_embeddings", True), ("use_cache", False)):
        if r.random() < 0.4:
            c[k] = v
    return tf.GPTNeoXConfig, c


def gemma(cls):
    def make(r):
        kv = r.choice([1, 2, 3])
        heads = kv * r.choice([1, 2, 3])
        c = dict(vocab_size=r.randint(7, 60), hidden_size=heads * r.choice([2, 3, 4, 8]), intermediate_size=r.randint(5, 50), num_hidden_layers=r.randint(1, 7),
                 num_attention_heads=heads, num_key_value_heads=kv, head_dim=r.choice([2, 4, 10]), max_position_embeddings=r.randint(16, 64),
                 sliding_window=r.randint(1, 12))
        for k, v in (("attention_bias", True), ("use_cache", False), ("tie_word_embeddings", False), ("query_pre_attn_scalar", 9), ("final_logit_softcapping", 2.5),
                     ("layer_types", [r.choice(["full_attention", "sliding_attention"]) for _ in range(c["num_hidden_layers"])])):
            if r.random() < 0.3:
                c[k] = v
        if cls is tf.Gemma2Config:
            if r.random() < 0.3:
                c.update(attn_logit_softcapping=None, final_logit_softcapping=None)
        elif r.random() < 0.5:
            c["rope_parameters"] = dict(full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e5), sliding_attention=dict(rope_type="default"))
        elif "layer_types" not in c:
            c["sliding_window_pattern"] = r.randint(1, 7)
        return cls, c

    return make


def encoder(r):
    heads = r.choice([1, 2, 3])
    c = dict(hidden_size=heads * r.choice([3, 4, 8]), intermediate_size=r.randint(5, 50), num_hidden_layers=r.randint(1, 3), num_attention_heads=heads,
             hidden_act=r.choice(["gelu", "relu", "gelu_new", "silu"]))
    for k, v in (("hidden_dropout_prob", 0.2), ("attention_probs_dropout_prob", 0.0), ("num_labels", r.randint(2, 9)), ("layer_norm_eps", 1e-5)):
        if r.random() < 0.4:
            c[k] = v
    return c


def bert(r):
    c = dict(encoder(r), vocab_size=r.randint(7, 60), max_position_embeddings=r.randint(8, 64))
    for k, v in (("type_vocab_size", r.randint(1, 4)), ("classifier_dropout", 0.3), ("id2label", {str(i): str(i) for i in range(r.randint(2, 5))})):
        if r.random() < 0.4 and not (k == "id2label" and "num_labels" in c):
            c[k] = v
    return tf.BertConfig, c


def vit(r):
    size = lambda: r.choice([1, 2, 3, 4])
    patch = [size(), size()]
    c = dict(encoder(r), image_size=[p * size() + r.randint(0, p - 1) for p in patch], patch_size=patch, num_channels=r.choice([1, 3]), qkv_bias=r.random() < 0.5)
    if r.random() < 0.5:
        c["patch_size"], c["image_size"] = patch[0], patch[0] * size()
    return tf.ViTConfig, c


CLASSIFIERS = {tf.BertConfig: tf.BertForSequenceClassification, tf.ViTConfig: tf.ViTForImageClassification}


def batch(config, tokens):
    if isinstance(config, tf.ViTConfig):
        sides = config.image_size if isinstance(config.image_size, (list, tuple)) else [config.image_size] * 2
        return torch.randn(2, config.num_channels, *sides)
    return torch.randint(0, config.vocab_size, (2, tokens))


def elements(out):
    # A hook that looks for tensors looks into tuples, not into the records of transformers.
    if isinstance(out, torch.Tensor):
        return out.numel()
    if isinstance(out, tuple):
        return sum(elements(x) for x in out)
    return 0


def measure(cls, values, tokens):
    torch.manual_seed(0)
    config = cls(**values)
    m = (CLASSIFIERS[cls]._from_config(config) if cls in CLASSIFIERS else tf.AutoModelForCausalLM.from_config(config)).train()
    calls = {}

    def hook(name):
        return lambda mod, args, out: calls.__setitem__(name, calls.get(name, 0) + elements(out))

    modules = dict(m.named_modules())
    for name, mod in modules.items():
        mod.register_forward_hook(hook(name))
    x = batch(config, tokens)
    m(x, labels=torch.randint(0, config.num_labels, (2,)) if cls in CLASSIFIERS else x)
    return dict(config=dict(values, model_type=cls.model_type), tokens=tokens, parameters=sum(p.numel() for p in m.parameters()),
                modules={n: [type(mod).__name__, calls.get(n, -1)] for n, mod in modules.items()})  # -1: never called


r, rows = random.Random(5), []
later_families = [later(cls) for cls in (tf.MistralConfig, tf.Qwen3Config, tf.Phi3Config)] + [neox]
gemmas = [gemma(cls) for cls in (tf.Gemma2Config, tf.Gemma3TextConfig)]
for i, family in enumerate([gpt2, llama, lambda r: llama(r, True), *later_families, *gemmas, bert]):
    for _ in range(30 if i < 3 else 15 if i < 7 else 100 if i < 9 else 40):
        rows.append(json.dumps(measure(*family(r), r.randint(2, 8)), separators=(",", ":")))
text = '{"torch":%s,"transformers":%s,"models":[\n%s\n]}\n' % (json.dumps(torch.__version__), json.dumps(tf.__version__), ",\n".join(rows))
with open(sys.argv[1], "wb") as f, gzip.GzipFile("", "wb", 9, f, 0) as z:
    z.write(text.encode())
