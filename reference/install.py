"""Puts recorded files where the tests read them, and notes the versions and the checksum of each in recorded.json.

    python3 install.py FOLDER     # what record.py --out FOLDER wrote; parts that it lacks are left as they are
"""

import gzip
import hashlib
import json
import os
import sys

import cases

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RECORDED = os.path.join(ROOT, "reference", "recorded.json")

TRAINING, CONFORMANCE = "train/testdata", "train/conformance/testdata"
SNAPSHOTS, OPTIMIZERS = "instrument/snapshot/testdata", "optim/testdata"

# The annotated cases whose optimizer steps are tests of optim.
OPTIMIZER_TRACES = ("gpt", "gpt_adafactor", "gpt_adamw_fused", "gpt_adamw_loop", "gpt_bf16", "gpt_sgdm")

# The histories that are in the repository.
KEPT_HISTORIES = [h[0] for h in cases.HISTORIES]

# Where a recorded file goes as it is.
PLAIN = {
    "golden_gpt.safetensors": TRAINING,
    "golden_qwen2.safetensors": TRAINING,
    "golden_qwen2_config.json": TRAINING,
    "golden_qwen2_float64.safetensors": TRAINING,
    "families.safetensors": TRAINING,
    "adapters.safetensors": TRAINING,
    "pytorch_memory.json": "predict/accuracy/testdata",
    "pytorch_linear.json": "scenarios/testdata",
    **{f"{n}.pkl.gz": SNAPSHOTS for n in [*KEPT_HISTORIES, "linear_grad", "linear_nograd", "qwen_b2"]},
    **{f"{n}.json": SNAPSHOTS for n in KEPT_HISTORIES},
    **{f"{c['id']}.tsv.gz": "predict/testdata/traces" for c in cases.ANNOTATED},
}


def plain(folder):
    for name, target in PLAIN.items():
        path = os.path.join(folder, name)
        if os.path.exists(path):
            with open(path, "rb") as f:
                yield f"{target}/{name}", f.read()


def golden(folder):
    """Operations and optimizers' paths are recorded together and read apart."""
    path = os.path.join(folder, "golden_ops.safetensors")
    if not os.path.exists(path):
        return
    from safetensors.torch import load_file, save

    tensors = load_file(path)
    paths = {k: v for k, v in tensors.items() if k.startswith("opt.")}
    yield f"{CONFORMANCE}/golden_ops.safetensors", save({k: v for k, v in tensors.items() if k not in paths})
    yield f"{OPTIMIZERS}/paths.safetensors.gz", gzip.compress(save(paths), mtime=0)


def optimizer_traces(folder):
    """What optimizers allocate in their steps, of several traces in one table."""
    table = ["trace\tphase\tevent\tbytes\tfreed_at"]
    for name in OPTIMIZER_TRACES:
        path = os.path.join(folder, name + ".tsv.gz")
        if not os.path.exists(path):
            return
        with gzip.open(path, "rt") as f:
            for line in f.read().splitlines()[1:]:
                event, phase, size, freed_at = line.split("\t")[:4]
                if phase.endswith(".optim"):
                    table.append("\t".join((name, phase, event, size, freed_at)))
    yield f"{OPTIMIZERS}/traces.tsv.gz", gzip.compress(("\n".join(table) + "\n").encode(), mtime=0)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = sys.argv[1]
    with open(os.path.join(folder, "versions.json")) as f:
        versions = json.load(f)
    with open(RECORDED) as f:
        recorded = json.load(f)
    for source in (plain, golden, optimizer_traces):
        for path, content in source(folder):
            with open(os.path.join(ROOT, path), "wb") as f:
                f.write(content)
            recorded[path] = dict(versions, sha256=hashlib.sha256(content).hexdigest())
            print(path)
    with open(RECORDED, "w") as f:
        json.dump(recorded, f, indent=1, sort_keys=True)
        f.write("\n")


if __name__ == "__main__":
    main()
