"""Fetches CUDA's headers and run-time compiler from NVIDIA's Python wheels.

Usage: gpu_sdk.py --out FOLDER --version 13.0

FOLDER gets include/ and lib/. Nothing is installed.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import zipfile

# The wheels, and what of each is wanted.
WHEELS = ["cuda-runtime", "cuda-nvrtc", "cuda-crt"]
PLATFORMS = ["manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux_2_12", "manylinux2014", "manylinux2010",
             "manylinux1"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--version", required=True, help="CUDA version, such as 13.0")
    parser.add_argument("--machine", default="x86_64", help="x86_64 or aarch64")
    args = parser.parse_args()

    major = int(args.version.split(".")[0])
    # Up to CUDA 12 the packages carry the version in their names, and the
    # compiler's headers are part of nvcc's package.
    suffix = "" if major >= 13 else f"-cu{major}"
    names = WHEELS if major >= 13 else ["cuda-runtime", "cuda-nvrtc"]
    requirements = [f"nvidia-{n}{suffix}=={args.version}.*" for n in names]
    platforms = [f"--platform={p}_{args.machine}" for p in PLATFORMS]
    with tempfile.TemporaryDirectory() as tmp:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", *platforms,
                        "-d", tmp, *requirements], check=True)
        for wheel in sorted(pathlib.Path(tmp).glob("*.whl")):
            unpack(wheel, args.out)
    (args.out / ".gitignore").write_text("*\n")


def unpack(wheel, out):
    """Copies include/ and the run-time compiler of a wheel to out."""
    with zipfile.ZipFile(wheel) as z:
        for name in z.namelist():
            parts = pathlib.PurePosixPath(name).parts
            if "include" in parts:
                to = out.joinpath(*parts[parts.index("include"):])
            elif parts[-1].startswith("libnvrtc") and ".alt." not in name:
                to = out / "lib" / parts[-1]
            else:
                continue
            if name.endswith("/") or ".." in parts:
                continue
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(z.read(name))


if __name__ == "__main__":
    main()
