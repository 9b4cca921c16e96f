"""What is recorded, a row a case. A case's keys are those of its record: see README.md."""

MLP = dict(dims=[784, 4096, 4096, 10])
GPT_CHAR = dict(V=65, T=256, L=6, d=384, h=6)
GPT2_SMALL = dict(V=50257, T=1024, L=12, d=768, h=12)
QWEN = dict(hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12,
            num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True)


def case(id, kind, cfg, batch, seq, opt, **rest):
    row = dict(id=id, kind=kind, cfg=cfg, batch=batch, seq=seq, opt=opt, accum=1, ckpt=False, amp=False, bf16=False,
               loss="ce", set_to_none=True)
    row.update(rest)
    return row


# Peaks by phase: predict/accuracy/testdata/pytorch_memory.json.
MEMORY = [
    case("mlp-b256-adamw", "mlp", MLP, 256, 0, "adamw"),
    case("mlp-b4096-adamw", "mlp", MLP, 4096, 0, "adamw"),
    case("mlp-b4096-sgd", "mlp", MLP, 4096, 0, "sgd"),
    case("mlp-b4096-sgdm", "mlp", MLP, 4096, 0, "sgdm"),
    case("gptchar-b2", "gpt", GPT_CHAR, 2, 256, "adamw"),
    case("gptchar-b16", "gpt", GPT_CHAR, 16, 256, "adamw"),
    *[case("gpt2s-b2-" + o, "gpt", GPT2_SMALL, 2, 1024, o)
      for o in ("sgd", "sgdm", "adam", "adamw", "adamw-fused", "adamw-loop", "adafactor")],
    case("gpt2s-b8-adamw", "gpt", GPT2_SMALL, 8, 1024, "adamw"),
    case("gpt2s-b8-ckpt", "gpt", GPT2_SMALL, 8, 1024, "adamw", ckpt=True),
    case("gpt2s-b8-amp", "gpt", GPT2_SMALL, 8, 1024, "adamw", amp=True),
    case("gpt2s-b8-bf16", "gpt", GPT2_SMALL, 8, 1024, "adamw", bf16=True),
    case("gpt2s-b2-keepgrad", "gpt", GPT2_SMALL, 2, 1024, "adamw", set_to_none=False),
    case("qwen15-b16-mean", "Qwen2", QWEN, 16, 256, "adamw", loss="mean"),
    case("qwen15-b2-mean", "Qwen2", QWEN, 2, 256, "adamw", loss="mean"),
    case("qwen15-b16-ce", "Qwen2", QWEN, 16, 256, "adamw"),
    case("qwen15-b2-ce", "Qwen2", QWEN, 2, 256, "adamw"),
    case("qwen15-b16-ckpt", "Qwen2", QWEN, 16, 256, "adamw", ckpt=True),
    case("qwen15-b16-fused", "Qwen2", QWEN, 16, 256, "adamw-fused"),
    case("qwen15-b16-amp", "Qwen2", QWEN, 16, 256, "adamw", amp=True),
    case("qwen15-b16-bf16", "Qwen2", QWEN, 16, 256, "adamw", bf16=True),
]

TINY_GPT = dict(V=331, T=96, L=2, d=80, h=5)
TINY_LLAMA = dict(hidden_size=96, intermediate_size=272, num_hidden_layers=2, num_attention_heads=6,
                  num_key_value_heads=2, vocab_size=331)
TINY_GEMMA = dict(TINY_LLAMA, head_dim=32, sliding_window=32)
TINY_QWEN = dict(TINY_LLAMA, tie_word_embeddings=True)
TINY_LLAMA3 = dict(TINY_QWEN, rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=32.0, high_freq_factor=4.0,
                                                   low_freq_factor=1.0, original_max_position_embeddings=64))
TINY_GPT2 = dict(n_embd=80, n_layer=2, n_head=5, vocab_size=331, n_positions=96)

# Two steps, allocation by allocation: train's and optim's traces.
ANNOTATED = [
    case("gpt", "gpt", TINY_GPT, 12, 96, "adamw"),
    case("gpt_ckpt", "gpt", TINY_GPT, 12, 96, "adamw", ckpt=True),
    case("gpt_amp", "gpt", TINY_GPT, 12, 96, "adamw", amp=True),
    case("gpt_bf16", "gpt", TINY_GPT, 12, 96, "adamw", bf16=True),
    case("gpt_accum3", "gpt", TINY_GPT, 4, 96, "adamw", accum=3),
    case("gpt_amp_ckpt", "gpt", TINY_GPT, 12, 96, "adamw", amp=True, ckpt=True),
    *[case("gpt_" + o.replace("-", "_"), "gpt", TINY_GPT, 12, 96, o)
      for o in ("sgd", "sgdm", "adamw-fused", "adamw-loop", "adafactor")],
    case("mlp", "mlp", dict(dims=[177, 409, 509, 10]), 301, 0, "adamw"),
    case("qwen2_ce", "Qwen2", TINY_QWEN, 12, 88, "adamw"),
    case("qwen2_mean", "Qwen2", TINY_QWEN, 12, 88, "adamw", loss="mean"),
    case("qwen2_ckpt", "Qwen2", TINY_QWEN, 12, 88, "adamw", ckpt=True),
    case("qwen2_amp", "Qwen2", TINY_QWEN, 12, 88, "adamw", amp=True),
    case("qwen2_bf16", "Qwen2", TINY_QWEN, 12, 88, "adamw", bf16=True),
    case("llama_ce", "Llama", dict(TINY_LLAMA, tie_word_embeddings=False), 12, 88, "adamw"),
    case("gpt2_ce", "GPT2", TINY_GPT2, 12, 88, "adamw"),
    case("gpt2_amp", "GPT2", TINY_GPT2, 12, 88, "adamw", amp=True),
    case("gpt2_bf16", "GPT2", TINY_GPT2, 12, 88, "adamw", bf16=True),
    case("llama3_bf16", "Llama", TINY_LLAMA3, 12, 88, "adamw-fused", bf16=True),
    case("llama3_mha_ce", "Llama", dict(TINY_LLAMA3, num_key_value_heads=6), 12, 88, "adamw"),
    case("llama3_amp", "Llama", TINY_LLAMA3, 12, 88, "adamw", amp=True),
    case("mistral_ce", "Mistral", dict(TINY_LLAMA, sliding_window=32), 12, 88, "adamw"),
    case("gemma2_bf16", "Gemma2", dict(TINY_GEMMA, num_hidden_layers=2), 12, 88, "adamw", bf16=True),
    case("gemma3_ce", "Gemma3Text", dict(TINY_GEMMA, num_hidden_layers=6, tie_word_embeddings=True), 12, 88, "adamw"),
    case("gemma3_bf16", "Gemma3Text", dict(TINY_GEMMA, num_hidden_layers=6, tie_word_embeddings=True), 12, 88, "adamw", bf16=True),
    case("mistral_bf16", "Mistral", dict(TINY_LLAMA, sliding_window=4096), 12, 88, "adamw", bf16=True),
    case("gptneox_ce", "GPTNeoX", dict(hidden_size=96, intermediate_size=384, num_hidden_layers=2, num_attention_heads=6, vocab_size=331),
         12, 88, "adamw"),
    case("bert_ce", "Bert", dict(hidden_size=96, intermediate_size=272, num_hidden_layers=2, num_attention_heads=6, vocab_size=331), 12, 88, "adamw"),
    case("phi3_ce", "Phi3", dict(TINY_LLAMA, num_key_value_heads=6, pad_token_id=0), 12, 88, "adamw"),
    case("phi3_bf16", "Phi3", dict(TINY_LLAMA, num_key_value_heads=6, pad_token_id=0), 12, 88, "adamw", bf16=True),
    case("qwen3_ce", "Qwen3", dict(TINY_QWEN, head_dim=32), 12, 88, "adamw"),
    case("qwen3_bf16", "Qwen3", dict(TINY_QWEN, head_dim=32), 12, 88, "adamw", bf16=True),
    # Shapes whose kernels take temporaries of their own: few keys, heads that no fused kernel takes as they are.
    case("gpt2_heads8", "GPT2", dict(TINY_GPT2, n_head=10), 16, 3, "adamw"),
    case("gpt2_bf16_heads16", "GPT2", dict(TINY_GPT2, n_positions=256), 4, 255, "adamw", bf16=True),
    *[case(f"gpt2_heads{size}", "GPT2", dict(TINY_GPT2, n_embd=2 * size, n_head=2), 12, 88, "adamw")
      for size in (17, 34, 50, 128, 256)],
    *[case(f"gpt2_bf16_heads{size}", "GPT2", dict(TINY_GPT2, n_embd=2 * size, n_head=2), 12, 88, "adamw", bf16=True)
      for size in (20, 36, 128, 256)],
]

# Histories of the allocator: (name, shapes as (rows, tokens) a step, model, allocator settings, limit in bytes).
HISTORIES = [
    ("gptchar_default", [(16, 256)] * 3, GPT_CHAR, "", None),
    ("gpt2s_default", [(2, 512)] * 2, GPT2_SMALL, "", None),
    ("varlen_default", [(8, 100), (8, 512), (3, 77), (16, 300), (8, 450), (1, 512), (16, 512), (5, 333)],
     dict(V=65, T=512, L=4, d=256, h=4), "", None),
    ("varlen_expand", [(8, 100), (8, 512), (3, 77), (16, 300), (8, 450), (1, 512), (16, 512), (5, 333)],
     dict(V=65, T=512, L=4, d=256, h=4), "expandable_segments:True", None),
    ("oom_default", [(8, 256), (16, 256), (24, 256), (64, 256)], GPT_CHAR, "", 2 << 30),
]

# Values: the config classes and configs of families.py.
DECODER = dict(vocab_size=19, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
               num_key_value_heads=2, max_position_embeddings=96)


NEOX = dict(vocab_size=19, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=96)
GEMMA = dict(DECODER, head_dim=6, sliding_window=5, pad_token_id=None)


def rope(kind, **rest):
    """Contexts are of few positions, so that scaled rotary frequencies differ within them."""
    return dict(DECODER, max_position_embeddings=32, num_hidden_layers=1, rope_parameters=dict(rest, rope_type=kind, rope_theta=100.0))


FAMILIES = {
    "llama": ("Llama", dict(DECODER, attention_bias=True, mlp_bias=True, head_dim=8)),
    "llama_linear": ("Llama", rope("linear", factor=4.0)),
    "llama_dynamic": ("Llama", rope("dynamic", factor=4.0)),
    "llama_llama3": ("Llama", dict(rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                        original_max_position_embeddings=16), head_dim=16)),
    "llama_yarn": ("Llama", dict(rope("yarn", factor=4.0, original_max_position_embeddings=8), head_dim=16)),
    "llama_yarn_mscale": ("Llama", dict(rope("yarn", factor=4.0, original_max_position_embeddings=8, beta_fast=4.0, mscale=0.7,
                                             mscale_all_dim=1.3, truncate=False), head_dim=16)),
    "mistral": ("Mistral", dict(DECODER, sliding_window=None)),
    "gpt_neox": ("GPTNeoX", NEOX),
    "gpt_neox_serial": ("GPTNeoX", dict(NEOX, use_parallel_residual=False, attention_bias=False, num_hidden_layers=1)),
    "phi3": ("Phi3", dict(DECODER, pad_token_id=None, rope_parameters=dict(rope_type="default", rope_theta=100.0, partial_rotary_factor=0.5))),
    "qwen2": ("Qwen2", DECODER),
    "qwen3": ("Qwen3", dict(DECODER, head_dim=6, tie_word_embeddings=True)),
    "mistral_window": ("Mistral", dict(DECODER, sliding_window=5)),
    "gemma2": ("Gemma2", dict(GEMMA, attn_logit_softcapping=1.5, final_logit_softcapping=2.5, query_pre_attn_scalar=20)),
    "gemma2_uncapped": ("Gemma2", dict(GEMMA, attn_logit_softcapping=None, final_logit_softcapping=None, sliding_window=40, attention_bias=True,
                                       tie_word_embeddings=False)),
    "gemma3_text": ("Gemma3Text", dict(GEMMA, num_hidden_layers=3, tie_word_embeddings=False, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                                       rope_parameters=dict(full_attention=dict(rope_type="linear", factor=4.0, rope_theta=50.0),
                                                            sliding_attention=dict(rope_type="default", rope_theta=10.0)))),
    "gemma3_text_one_head": ("Gemma3Text", dict(GEMMA, num_key_value_heads=1, final_logit_softcapping=3.0)),
    "qwen3_window": ("Qwen3", dict(DECODER, head_dim=6, num_hidden_layers=3, use_sliding_window=True, sliding_window=5, max_window_layers=1)),
}

ENCODER = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_labels=3, hidden_dropout_prob=0.0,
               attention_probs_dropout_prob=0.0)
FAMILIES["bert"] = ("Bert", dict(ENCODER, vocab_size=19, max_position_embeddings=32, type_vocab_size=3, pad_token_id=None))

# Those whose rows have one label each, and their class.
CLASSIFIERS = {"bert": "BertForSequenceClassification", "vit": "ViTForImageClassification"}


def batch(config):
    """Two rows of what a classifier takes: 13 tokens, or pixels."""
    import torch

    if "vocab_size" in config:
        return torch.randint(0, config["vocab_size"], (2, 13))
    return torch.randn(2, config["num_channels"], *config["image_size"])


# What adapters.py trains: peft's LoRA over a config class and its config.
ADAPTED = ("Llama", dict(vocab_size=31, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         max_position_embeddings=32, tie_word_embeddings=True))
ADAPTER = dict(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=["q_proj", "v_proj", "o_proj", "down_proj"], task_type="CAUSAL_LM")
