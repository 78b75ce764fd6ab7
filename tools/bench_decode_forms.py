#!/usr/bin/env python3
"""Milliseconds a token under every form of `--decode`, beside compiled PyTorch in one CUDA graph.

    python3 tools/bench_decode_forms.py                      Llama-2-7B, 1 and 16 sequences, 1K to 16K
    python3 tools/bench_decode_forms.py --config configs/qwen3-0.6b.json --batch 1 --context 1024

A row is a number of sequences with a context each; random weights in bf16; the first GPU. The last
columns are `auto` over the best forced form, PyTorch over `auto`, and what ClusterFusion claims for
Llama-2-7B over its peers. A second table has the launches of a step, and the time that remains
beside a read of all bytes. llama.cpp: docs/log/cluster-fusion.md has the commands.
"""
import argparse
import csv
import io
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FORMS = ["apart", "relay", "fused", "fused:scope=projected", "fused:exchange=memory",
         "fused:split=head", "auto"]
SWEEP = [f"fused:cluster={n},scope={scope},exchange={path}" for scope in ("qkv", "projected")
         for path in ("chip", "memory") for n in (1, 2, 3)]
SWEEP += [f"fused:split=head,scope={scope},exchange={path}" for scope in ("qkv", "projected")
          for path in ("chip", "memory")]
CLAIMS = {1: "1.39 to 1.43", 16: "1.09 to 1.12"}  # for Llama-2-7B, by sequences


def braid_rows(args, form, batch):
    """{context: row} of one form; contexts without room, and forms that do not exist, are absent."""
    found = {}
    contexts = list(args.context)
    while contexts:
        command = [args.braid, "bench", "--device", "cuda:0", "--random-weights", "--config", args.config,
                   "-p", "0", "-n", str(args.tokens), "-r", str(args.repetitions), "-b", str(batch),
                   "--decode", form, "-d", ",".join(map(str, contexts)), "-o", "csv"]
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             timeout=600)
        for row in csv.DictReader(io.StringIO(run.stdout)):
            found[int(row["depth"])] = row
            print(f"{form}, {batch} sequences of {row['depth']}: {row['step_ms']} ms", file=sys.stderr)
        if run.returncode == 0:
            break
        print(f"{form}, {batch} sequences: {run.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        if "--decode" in run.stderr:
            break
        contexts = [c for c in contexts[:-1] if c not in found]  # the longest has no room
    return found


def torch_ms(args, batch):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [args.python, str(ROOT / "tools/bench_torch.py"), "--config", args.config, "--batch",
                   str(batch), "--context", *map(str, args.context), "--mode", args.mode, "--json", out.name]
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             timeout=900)
        if run.returncode != 0:
            print(run.stderr[-400:], file=sys.stderr)
            return {}
        return {r["context"]: r["ms"] for r in json.load(open(out.name)) if r["what"] == "decode"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--braid", default=str(ROOT / "build/release/bin/braid"))
    parser.add_argument("--config", default="configs/llama-2-7b.json")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--context", type=int, nargs="+", default=[1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--forms", nargs="+", default=FORMS)
    parser.add_argument("--sweep", action="store_true", help="all clusters, splits, scopes and exchanges")
    parser.add_argument("--python", help="an interpreter with PyTorch; without one there is no peer")
    parser.add_argument("--mode", default="max-autotune-no-cudagraphs", help="of torch.compile")
    args = parser.parse_args()
    args.context.sort()
    forms = SWEEP if args.sweep else args.forms
    columns = forms + (["PyTorch"] if args.python else [])
    print("| sequences, keys each | " + " | ".join(columns) + " | auto / best | PyTorch / auto | claimed |")
    print("|---" * (len(columns) + 4) + "|")
    launches = []
    for batch in args.batch:
        rows = {form: braid_rows(args, form, batch) for form in forms}
        ms = {form: {c: float(r["step_ms"]) for c, r in its.items()} for form, its in rows.items()}
        if args.python:
            ms["PyTorch"] = torch_ms(args, batch)
        for context in args.context:
            at = {name: ms[name].get(context) for name in columns}
            best = min((at[f] for f in forms if f != "auto" and at[f]), default=None)
            auto = at.get("auto")
            peer = at.get("PyTorch")
            cells = [f"{at[name]:.3f}" if at[name] else "none" for name in columns]
            cells.append(f"{auto / best:.3f}" if auto and best else "")
            cells.append(f"{peer / auto:.2f}" if peer and auto else "")
            cells.append(CLAIMS.get(batch, ""))
            print(f"| {batch}, {context} | " + " | ".join(cells) + " |", flush=True)
        for form, its in rows.items():
            for context, row in sorted(its.items())[:1]:
                beside = float(row["step_ms"]) * (1 - float(row["floor_share"]))
                launches.append(f"| {batch}, {context} | {form} | {row['launches']} | {beside:.3f} |")
    print("\n| sequences, keys each | form | launches | ms beside the bytes |\n|---|---|---|---|")
    print("\n".join(launches))


if __name__ == "__main__":
    main()
