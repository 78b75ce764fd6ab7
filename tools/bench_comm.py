#!/usr/bin/env python3
"""Braid's collectives beside NCCL's, on the same GPUs in one run: one markdown table with ratios.

Runs bench_cuda_comm and tools/bench_nccl.py (or takes their JSON), then joins them by op and size.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# all_reduce on two GPUs: the largest ratio to NCCL's time that is wanted, up to a size.
WANTED = ((128 << 10, 0.3), (1 << 20, 0.7), (256 << 20, 1.0))


def run(command, seconds):
    try:
        result = subprocess.run(command, timeout=seconds, stdout=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        sys.exit(f"bench_comm: {command[0]} took more than {seconds} s")
    if result.returncode != 0:
        sys.exit(f"bench_comm: {' '.join(map(str, command))} gave {result.returncode}")


def load(path, what):
    try:
        return json.loads(pathlib.Path(path).read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"bench_comm: {what} '{path}': {error}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bench", default="build/release/bin/bench_cuda_comm")
    parser.add_argument("--braid-json", help="of an earlier bench_cuda_comm")
    parser.add_argument("--nccl-json", help="of an earlier bench_nccl.py")
    parser.add_argument("--max-mb", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=60, help="limit of each program")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        braid, nccl = args.braid_json, args.nccl_json
        if not nccl:
            nccl = f"{folder}/nccl.json"
            run([sys.executable, HERE / "bench_nccl.py", "--json", nccl, "--max-mb",
                 str(args.max_mb)], args.seconds)
        if not braid:
            braid = f"{folder}/braid.json"
            run([args.bench, "--json", braid, "--max-mb", str(args.max_mb)], args.seconds)
        ours, theirs = load(braid, "Braid's times"), load(nccl, "NCCL's times")
    if ours["ranks"] != theirs["ranks"]:
        sys.exit(f"bench_comm: {ours['ranks']} ranks against NCCL's {theirs['ranks']}")
    nccl_us = {(row["op"], row["bytes"]): row["us"] for row in theirs["rows"]}
    chosen = {}
    for row in ours["rows"]:
        key = row["op"], row["bytes"]
        if row["chosen"] and (key not in chosen or row["us"] < chosen[key]["us"]):
            chosen[key] = row
    print(f"{ours['ranks']} GPUs, bf16, microseconds each in a CUDA graph, NCCL "
          f"{theirs.get('nccl', '?')}\n")
    print("| op | KB | Braid | us | NCCL us | ratio | wanted |")
    print("|---|---|---|---|---|---|---|")
    for (op, size), row in chosen.items():
        config = row["config"] + (" pdl" if row["pdl"] else "")
        theirs_us = nccl_us.get((op, size))
        wanted = ""
        if op == "all_reduce" and ours["ranks"] == 2:
            wanted = next((f"{limit}" for most, limit in WANTED if size <= most), "")
        ratio = f"{row['us'] / theirs_us:.2f}" if theirs_us else ""
        if wanted and theirs_us and row["us"] / theirs_us > float(wanted):
            ratio = f"**{ratio}**"
        print(f"| {op} | {size >> 10} | {config} | {row['us']:.2f} | "
              f"{'' if theirs_us is None else f'{theirs_us:.2f}'} | {ratio} | {wanted} |")


if __name__ == "__main__":
    main()
