# Prints the keys and defaults of the config classes of the installed version of transformers, as save_pretrained of that
# version writes them in full. Run with each version in turn (no PyTorch is needed) and give the outputs to --merge:
#   python transformers_configs.py > 5.17.0.json
#   python transformers_configs.py --merge 4.48.3.json 4.57.3.json 5.17.0.json 5.24.0.json > transformers_configs.json
import json
import sys

if sys.argv[1:2] == ["--merge"]:
    versions = {}
    for name in sys.argv[2:]:
        with open(name) as f:
            versions.update(json.load(f))
    lines = []
    for version, configs in versions.items():
        rows = ",\n".join("  %s: %s" % (json.dumps(k), json.dumps(c, sort_keys=True)) for k, c in configs.items())
        lines.append(" %s: {\n%s\n }" % (json.dumps(version), rows))
    print("{\n" + ",\n".join(lines) + "\n}")
else:
    import transformers

    configs = {}
    for c in (transformers.GPT2Config, transformers.LlamaConfig, transformers.Qwen2Config, transformers.MistralConfig, transformers.Qwen3Config, transformers.Phi3Config, transformers.GPTNeoXConfig,
              transformers.Gemma2Config, transformers.Gemma3TextConfig, transformers.BertConfig, transformers.ViTConfig):
        configs[c.model_type] = json.loads(c().to_json_string(use_diff=False))
    print(json.dumps({transformers.__version__: configs}))
