#!/usr/bin/env python3
"""Writes tests/golden/plans/facts.json: what is decided about well-known models, and must not change unseen.

Launches, memory and schedule hashes of each strategy, by `braid plan` on the null backend; bytes of weights and keys
on the fullest of the ranks that divide a prompt's tokens, by `braid plan prompt`. The golden test compares them
exactly; run this after a change that is meant to change them, and look at the difference.
"""

import argparse
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = ["llama-2-7b", "llama-3-8b", "qwen3-8b"]
STRATEGIES = ["sequential", "overlap", "nanoflow", "gemm_collective", "tokenweave"]
SHAPES = [(1, 0), (2, 512), (8, 4096)]  # ranks, tokens of a prompt; 0: 32 sequences that decode
LONG_MODELS = ["llama-3-8b-1m", "glm-4-9b-1m", "qwen2.5-7b-1m"]
LONG_PROMPTS = [8192, 200000]  # every rank with room for all keys; with room for its own but for two ranks of GLM and Qwen
FACTS = ["launches", "micro_batches", "arena_bytes", "sequential_arena_bytes", "wire_bytes", "hash"]


def facts(braid: str) -> dict:
    table = {}
    for model in MODELS:
        for strategy in STRATEGIES:
            for tp, tokens in SHAPES:
                work = ["--tokens", str(tokens)] if tokens else ["--tokens", "0", "--decodes", "32", "--depth", "1000"]
                command = [braid, "plan", "--config", str(ROOT / f"configs/{model}.json"), "--schedule", strategy,
                           "--tp", str(tp), "--json", *work]
                plan = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
                name = f"{model} {strategy} tp {tp} {tokens or 'decode'}"
                table[name] = {fact: plan[fact] for fact in FACTS}
    for model in LONG_MODELS:
        command = [braid, "plan", "prompt", "--config", str(ROOT / f"configs/{model}.json"), "--machines", "1x8", "--json",
                   "--tokens", ",".join(map(str, LONG_PROMPTS))]
        for prompt in json.loads(subprocess.run(command, check=True, capture_output=True).stdout):
            for row in prompt["candidates"]:
                if row["how"].startswith("tokens divided, ring"):
                    name = f"{model} sp ring {row['ranks']} {prompt['tokens']}"
                    table[name] = {fact: int(row[fact]) for fact in ("weight_bytes", "key_bytes")}
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--braid", default=str(ROOT / "build/release/bin/braid"))
    parser.add_argument("--check", action="store_true", help="compare instead of writing; exit 1 on a difference")
    options = parser.parse_args()
    path = ROOT / "tests/golden/plans/facts.json"
    table = facts(options.braid)
    if not options.check:
        path.write_text(json.dumps(table, indent=1) + "\n")
        return 0
    known = json.loads(path.read_text())
    for name in sorted(known.keys() | table.keys()):
        if known.get(name) != table.get(name):
            print(f"{name}: {table.get(name)}, committed is {known.get(name)}")
    return known != table


if __name__ == "__main__":
    raise SystemExit(main())
