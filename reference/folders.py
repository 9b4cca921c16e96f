"""folders.py OUT: models as transformers saves them, tiny, with their tokenizer, and
what transformers computes with them: train/testdata/transformers_NAME."""
import json
import os
import sys

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXT = "Where does the memory go? größe 重み\n\n  12345 tokens<|endoftext|>"
SHARED = dict(vocab_size=320, bos_token_id=0, eos_token_id=0)
CASES = {  # name: config, size of a shard
    "llama": (transformers.LlamaConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                                       num_key_value_heads=2, max_position_embeddings=64, pad_token_id=None, **SHARED), "80KB"),
    "gemma3": (transformers.Gemma3TextConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=1,
                                             head_dim=8, sliding_window=16, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                                             max_position_embeddings=64, pad_token_id=None, **SHARED), "10GB"),
    "gpt2": (transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, **SHARED), "10GB"),
}


def tokenizer(text):
    """Byte-level BPE, trained on a text."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(text.split("\n"), trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<|endoftext|>")


def main(out):
    with open("README.md") as f:
        tok = tokenizer(f.read())
    for name, (config, shard) in CASES.items():
        folder = os.path.join(out, "transformers_" + name)
        torch.manual_seed(1)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.05 * torch.randn_like(p))
        model.save_pretrained(folder, max_shard_size=shard)
        os.remove(os.path.join(folder, "generation_config.json"))
        tok.save_pretrained(folder)
        ids = torch.tensor([tok(TEXT)["input_ids"]])
        with torch.no_grad():
            logits = model(ids).logits[0, -1]
            text = model.generate(ids, max_new_tokens=12, do_sample=False)[0]
        with open(os.path.join(folder, "recorded.json"), "w") as f:
            json.dump({"text": TEXT, "ids": ids[0].tolist(), "generated": text.tolist(),
                       "logits": [[round(float(x), 7) for x in logits]],
                       "versions": {"torch": torch.__version__, "transformers": transformers.__version__}}, f)


main(sys.argv[1])
