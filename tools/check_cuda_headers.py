#!/usr/bin/env python3
"""Does Braid's host code compile with the headers of CUDA 12.4, 12.8 and 13.0?

    tools/check_cuda_headers.py [VERSION ...] [--cublas] [--folder FOLDER] [-j JOBS]

pip fetches each toolkit's headers (30 to 110 MB) into FOLDER/VERSION, where they stay. g++ then checks every *.cc
of the CUDA backend, its kernels' launchers, its fabric, the engine and the program, without making code. Kernels
(*.cu) need an nvcc and are not checked. The four files that include cuBLASLt's header are left out unless --cublas
fetches it too (about 400 MB a toolkit).
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ["src/braid/backend/cuda/*.cc", "src/braid/fabric/peer/*.cc", "src/braid/kernels/cuda/**/*.cc",
           "src/braid/engine/cuda/*.cc", "src/braid/engine/attention/cuda/*.cc"]
NO_CUDA = {"no_cuda.cc"}


def packages(version):
    if version.startswith("12."):
        return [f"nvidia-cuda-{part}-cu12=={version}.*" for part in ("runtime", "cccl", "nvcc")]
    return [f"nvidia-cuda-{part}=={version}.*" for part in ("runtime", "cccl", "crt")]


def fetch(target, names):
    """pip's packages, below `target` alone; nothing where they are there."""
    if not target.is_dir():
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", target, *names],
                       check=True)
    return sorted(target.glob("nvidia/*/include"))


def headers(version, folder, cublas):
    """The include folders of a toolkit."""
    found = fetch(folder / version, packages(version))
    if cublas:
        suffix = "-cu12" if version.startswith("12.") else ""
        found += fetch(folder / f"{version}-cublas", [f"nvidia-cublas{suffix}=={version}.*"])
    return found


def sources():
    return sorted({path for pattern in SOURCES for path in ROOT.glob(pattern) if path.name not in NO_CUDA})


def check(source, includes):
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra",
               "-Wno-missing-field-initializers", "-I", ROOT / "src", "-I", ROOT / "apps"]
    for folder in includes:
        command += ["-isystem", folder]
    done = subprocess.run([*command, source], capture_output=True, text=True)
    return done.returncode == 0, done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", metavar="VERSION", default=["12.4", "12.8", "13.0"])
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / "cuda-headers")
    parser.add_argument("--cublas", action="store_true", help="fetch cuBLASLt's header, too")
    parser.add_argument("-j", "--jobs", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    files = sources()
    failed = 0
    for version in args.versions:
        includes = headers(version, args.folder, args.cublas)
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            results = list(pool.map(lambda source: check(source, includes), files))
        unchecked = [messages for _, messages in results if re.search(r"cublas(Lt|_api)\.h:", messages)]
        bad = sum(not ok for ok, _ in results) - len(unchecked)
        for _, messages in results:
            if messages not in unchecked:
                sys.stdout.write(messages)
        print(f"CUDA {version}: {len(files) - bad - len(unchecked)} files compile, {bad} do not; "
              f"{len(unchecked)} that need cuBLASLt's header are not checked", flush=True)
        failed += bad
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
