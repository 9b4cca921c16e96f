"""tokens.py OUT: small tokenizers of the kinds that published models have, and what the
library makes of some texts with them: data/tokenizer/testdata."""
import json
import os
import sys

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
TEXTS = ["Where does the memory go? größe 重み\n\n  12345 tokens<|endoftext|>", "it's I'LL  we've\t\ttabs\r\n\r\n   end  ",
         "a  b   c\n d", "", " ", "<|endoftext|> a <|endoftext|>", "e\u0301 h\u00e9llo—«ok» 😀 123,456.7", " x = y_2 **\n"]


def words(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t, 400, []


def llama3():
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer, t.decoder = words(WORDS % "{1,3}"), decoders.ByteLevel()
    return t, 400, []


def qwen2():
    t = Tokenizer(models.BPE())
    t.normalizer, t.pre_tokenizer, t.decoder = normalizers.NFC(), words(WORDS % ""), decoders.ByteLevel()
    return t, 400, []


def llama2():
    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return t, 620, ["<unk>"] + ["<0x%02X>" % i for i in range(256)]


def mistral():
    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=True)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return t, 620, ["<unk>"] + ["<0x%02X>" % i for i in range(256)]


def main(out):
    with open("README.md") as f:
        readme = f.read()
    for make in (gpt2, llama3, qwen2, llama2, mistral):
        t, size, first = make()
        bytewise = [] if first else pre_tokenizers.ByteLevel.alphabet()
        t.train_from_iterator(readme.split("\n"), trainers.BpeTrainer(
            vocab_size=size, special_tokens=first + ["<|endoftext|>"], initial_alphabet=bytewise, show_progress=False))
        if first:  # bytes are ordinary tokens in published files
            text = json.loads(t.to_str())
            text["added_tokens"] = [a for a in text["added_tokens"] if not a["content"].startswith("<0x")]
            t = Tokenizer.from_str(json.dumps(text))
            end = t.token_to_id("<|endoftext|>")
            t.post_processor = processors.TemplateProcessing(single="<|endoftext|> $A", pair="$A $B", special_tokens=[("<|endoftext|>", end)])
        t.save(os.path.join(out, make.__name__ + ".json"), pretty=False)
        recorded = []
        for text in TEXTS + [readme[:1500]]:
            plain, whole = t.encode(text, add_special_tokens=False).ids, t.encode(text).ids
            recorded.append({"text": text, "ids": plain, "whole": whole, "decoded": t.decode(plain, skip_special_tokens=False)})
        with open(os.path.join(out, make.__name__ + ".recorded.json"), "w") as f:
            json.dump(recorded, f)


main(sys.argv[1])
