#!/usr/bin/env python3
"""Constants of decode steps of this GPU, for profiles/decode: whole models beside their prices.

    python3 tools/fit_decode_rates.py > profiles/decode/NAME.json

Each constant takes the value with which `braid bench --explain` would have priced a form right, with
4,096 keys. ring_bytes, cta_stream and cta_keys are those of --like: bench_cuda_cluster measures them.
"""
import argparse
import csv
import io
import json
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEYS = 4096
PRICE = re.compile(r"^  (\S+): ([\d.]+) ms, of it bytes ([\d.]+), seams ([\d.]+), exchanges ([\d.]+) \(chosen\)")


def run(args, model, form, batch=1):
    """Seconds of a step, and the parts of its price."""
    command = [args.braid, "bench", "--device", "cuda:0", "--random-weights", "--config",
               str(ROOT / f"configs/{model}.json"), "-p", "0", "-n", str(args.tokens), "-r", "2", "-b", str(batch),
               "-d", str(KEYS), "--decode", form, "--explain", "-o", "csv"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"fit_decode_rates: {form}, {batch} sequences: {done.stderr.strip().splitlines()[-1]}")
    chosen, price = "", None
    for line in done.stderr.splitlines():
        steps = re.match(r"^decode steps of (\w+) token", line)
        if steps:
            wanted = steps[1] == ("one" if batch == 1 else str(batch))
        match = PRICE.match(line)
        if match and wanted:
            chosen, price = match[1], [float(x) / 1e3 for x in match.groups()[2:]]
    ms = float(next(csv.DictReader(io.StringIO(done.stdout)))["step_ms"])
    print(f"{model}, {batch} sequences, {chosen}: {ms:.3f} ms, priced {1e3 * sum(price):.3f}", file=sys.stderr)
    return ms / 1e3, *price, chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--braid", default=str(ROOT / "build/release/bin/braid"))
    parser.add_argument("--like", default=str(ROOT / "profiles/decode/h100.json"))
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--device", default="", help="what the file says of the GPU")
    args = parser.parse_args()
    rates = json.load(open(args.like))
    rates["device"] = args.device or rates["device"]
    model = "llama-2-7b"
    layers = json.load(open(ROOT / f"configs/{model}.json"))["num_hidden_layers"]

    relays = [run(args, m, "relay") for m in (model, "llama-3.2-1b", "qwen3-0.6b")]
    more = statistics.median((s - read) / seams for s, read, seams, _, _ in relays)
    rates["relay_seam"] *= more
    rates["relay_bare"] *= more
    seam = {}
    for name, batch in (("launch_seam", 1), ("panel_seam", 16)):
        s, read, seams, _, _ = run(args, model, "apart", batch)
        seam[batch] = (s - read) / seams
        rates[name] *= seam[batch]

    def block(form, batch=1):
        """Seconds of a layer's exchanges, and the cluster."""
        s, read, seams, _, chosen = run(args, model, form, batch)
        return (s - read - seam[batch] * seams) / layers, int(re.search(r"cluster=(\d+)", chosen)[1])

    two, _ = block("fused:cluster=2")
    three, _ = block("fused:cluster=3")
    more = (two + three) / (2 * rates["fused_seam"] + 5 * rates["fused_cta"])
    rates["fused_seam"] *= more
    rates["fused_cta"] *= more
    rates["memory_share"] = max(0, block("fused:cluster=2,exchange=memory")[0] / two - 1)
    rates["words_seam"] = max(0, block("fused:cluster=2,scope=projected")[0] - two)
    waves, n = block("fused:cluster=6")  # 32 heads in two
    rates["fused_wave"] = max(0, waves - rates["fused_seam"] - rates["fused_cta"] * n)
    batch, n = block("fused", 16)
    rates["fused_batch"] = max(0, batch - rates["fused_seam"] - rates["fused_cta"] * n)
    for name, m, n in (("scores_sum", model, 2), ("scores_group", "qwen3-0.6b", 4)):
        # A sum for every eight slots of 8 KB, with keys and values of head_dim / n elements.
        config = json.load(open(ROOT / f"configs/{m}.json"))
        head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        by_heads, by_tokens = (run(args, m, f"fused:cluster={n},split={split}")[0] for split in ("head", "token"))
        rounds = -(-KEYS // (8 * 8192 // (4 * head_dim // n))) * config["num_hidden_layers"]
        rates[name] = max(0, (by_heads - by_tokens) / rounds)
    rates = {k: float(f"{v:.3g}") if isinstance(v, float) else v for k, v in rates.items()}
    print(json.dumps(rates, indent=2))


if __name__ == "__main__":
    main()
