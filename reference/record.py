"""Records what this project's tests compare with: PyTorch's memory and its values.

    python3 record.py --out FOLDER             # everything; needs a CUDA device
    python3 record.py --out FOLDER golden      # only values, on the CPU
    python3 record.py --out FOLDER --case gpt --case mlp annotated   # these cases alone, of memory and annotated
    python3 record.py --list

Each part runs in a process of its own, so that none begins with another's memory. versions.json in the folder says which
versions and which card it was.
"""

import argparse
import datetime
import json
import os
import re
import subprocess
import sys

import cases

PARTS = {}
ONLY = []  # the ids of the cases to record; all if empty


def chosen(table):
    return [case for case in table if not ONLY or case["id"] in ONLY]


def part(name, cuda=True):
    def add(f):
        PARTS[name] = (f, cuda)
        return f

    return add


@part("golden", cuda=False)
def golden_part(out):
    import golden

    golden.record(out)
    here = os.path.dirname(os.path.abspath(__file__))
    subprocess.run([sys.executable, f"{here}/golden_float64.py", f"{out}/golden_qwen2.safetensors",
                    f"{out}/golden_qwen2_config.json", f"{out}/golden_qwen2_float64.safetensors"], check=True)


@part("families", cuda=False)
def families_part(out):
    import families

    families.record(out)


@part("adapters", cuda=False)
def adapters_part(out):
    import adapters

    adapters.record(out)


@part("memory")
def memory_part(out):
    import torch

    import memory

    records = []
    for case in chosen(cases.MEMORY):
        try:
            records.append(memory.record(case))
        except torch.OutOfMemoryError as e:
            records.append(dict(case, error=str(e)))
        print(case["id"], records[-1].get("peak", records[-1].get("error")), flush=True)
        with open(f"{out}/pytorch_memory.json", "w") as f:
            json.dump(records, f, separators=(",", ":"))


@part("annotated")
def annotated_part(out):
    import torch

    import annotated

    x = torch.randn(64, 64, device="cuda")  # the matrix libraries take their workspaces before the first case
    torch.nn.functional.linear(x @ x, x, x[0]).sum()
    del x
    for case in chosen(cases.ANNOTATED):
        annotated.record(case, f"{out}/{case['id']}.tsv.gz")
        print(case["id"], flush=True)


@part("linear")
def linear_part(out):
    """The linear layer with gradients, then without in the same process, then a Qwen2 whose history begins late."""
    import torch

    import histories
    import models

    marks = dict([histories.linear(True, out), histories.linear(False, out)])
    with open(f"{out}/pytorch_linear.json", "w") as f:
        json.dump(marks | activations(), f)
    case = dict(cases.case("qwen_b2", "Qwen2", cases.QWEN, 2, 256, "adamw", loss="mean"))
    model = models.build(case, "cuda")
    optimizer = models.OPTIMIZERS["adamw"](model.parameters())
    torch.cuda.memory._record_memory_history(context=None, max_entries=1_000_000)
    for _ in range(3):
        x, y = models.batch(case, "cuda")
        models.loss_of(case, model, x, y).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    histories.write(torch.cuda.memory._snapshot(), f"{out}/qwen_b2.pkl.gz")


def activations():
    """The elements that the outputs of modules have for one token, by module type, of tensor outputs only."""
    import torch

    import models

    model = models.transformers_model("Qwen2", cases.QWEN, "cuda")
    by_type = {}

    def hook(module, _, output):
        if torch.is_tensor(output):
            name = type(module).__name__
            by_type[name] = by_type.get(name, 0) + output.numel()

    for module in model.modules():
        module.register_forward_hook(hook)
    with torch.no_grad():
        model(torch.zeros(1, 1, dtype=torch.long, device="cuda"))
    return dict(act_per_token=sum(by_type.values()), act_by_type=by_type, nparams=sum(p.numel() for p in model.parameters()))


def history_part(name, shapes, config, settings, limit):
    def run(out):
        import histories

        histories.record(name, shapes, config, settings, limit, out)

    return run


for history in cases.HISTORIES:
    PARTS[history[0]] = (history_part(*history), True)


def versions():
    import torch
    import transformers

    v = dict(torch=torch.__version__, transformers=transformers.__version__, cuda=torch.version.cuda,
             date=datetime.date.today().isoformat(), card=None, driver=None)
    if torch.cuda.is_available():
        v["card"] = torch.cuda.get_device_name()
        with open("/proc/driver/nvidia/version") as f:
            v["driver"] = re.search(r"\b\d+\.\d+(\.\d+)+\b", f.read()).group()
    return v


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="all of them if none is named")
    parser.add_argument("--out", help="the folder to write to, which must exist")
    parser.add_argument("--case", action="append", default=[], metavar="ID", help="record this case alone, and others so named")
    parser.add_argument("--list", action="store_true", help="name the parts")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # this process is the part's own
    options = parser.parse_args()
    if options.list:
        print("\n".join(PARTS))
        return
    ONLY.extend(options.case)
    strange = set(ONLY) - {case["id"] for case in [*cases.MEMORY, *cases.ANNOTATED]}
    if strange:
        sys.exit(f"record: no case {min(strange)}; cases.py has them")
    unknown = [p for p in options.parts if p not in PARTS]
    if unknown or not options.out or not os.path.isdir(options.out):
        sys.exit(f"record: no part {unknown[0]}; --list names them" if unknown else "record: --out must name a folder that exists")
    if options.here:
        PARTS[options.parts[0]][0](options.out)
        return
    settings = {h[0]: h[3] for h in cases.HISTORIES}
    failed = []
    for name in options.parts or PARTS:
        print("==", name, flush=True)
        environment = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=settings.get(name, ""))
        command = [sys.executable, os.path.abspath(__file__), "--out", options.out, "--here",
                   *[word for case in ONLY for word in ("--case", case)], name]
        if subprocess.run(command, env=environment).returncode != 0:
            failed.append(name)
    with open(f"{options.out}/versions.json", "w") as f:
        json.dump(versions(), f, indent=1)
    if failed:
        sys.exit("record: failed: " + ", ".join(failed))


if __name__ == "__main__":
    main()
