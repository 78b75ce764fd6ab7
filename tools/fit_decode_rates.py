#!/usr/bin/env python3
"""Constants of decode steps of this GPU, for profiles/decode: whole models beside their prices.

    bench_cuda_cluster --quick --json cluster.json
    python3 tools/fit_decode_rates.py --clusters cluster.json > profiles/decode/NAME.json

Each constant takes the value with the least relative error (squares) of `braid bench --explain` over several
models: seams weigh most in the small models. Steps have 4,096 keys, those of divided heads 16,384. A CTA's rates
come from blocks with few CTAs. ring_bytes is that of --like, and so are the counts of clusters without --clusters.
"""
import argparse
import csv
import io
import json
import math
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEYS = 4096
LONG = 16384  # keys for sums of scores
PRICE = re.compile(r"^  (\S+): ([\d.]+) ms, of it bytes ([\d.]+), seams ([\d.]+), exchanges ([\d.]+) \(chosen\)")


def run(args, model, form, batch=1, keys=KEYS):
    """Seconds of a step, and the parts of its price."""
    command = [args.braid, "bench", "--device", "cuda:0", "--random-weights", "--config",
               str(ROOT / f"configs/{model}.json"), "-p", "0", "-n", str(args.tokens), "-r", "2", "-b", str(batch),
               "-d", str(keys), "--decode", form, "--explain", "-o", "csv"]
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


def scale(points):
    """The factor of each point's part for the least relative error of (seconds, known, part)."""
    over = sum(part * (seconds - known) / seconds**2 for seconds, known, part in points)
    return max(0, over / sum((part / seconds)**2 for seconds, _, part in points))


def read_stream(read, config):
    """Bytes a second with which a relay of this model with a head per query head was priced."""
    width, layers = config["hidden_size"], config["num_hidden_layers"]
    a_layer = 4 * width**2 + 3 * width * config["intermediate_size"] + 2 * width * KEYS
    return 2 * (layers * a_layer + width * config["vocab_size"]) / read


class Reads:
    """A CTA's rates, and the bytes of blocks priced by them in place of those of --like."""

    def __init__(self, args, like, configs):
        self.like, self.configs = like, configs
        self.stream, self.weights, self.keys = like["stream"], like["cta_stream"], list(like["cta_keys"])
        self.clusters = like["clusters"]
        if args.clusters:
            self.clusters = [row["clusters"] for row in json.load(open(args.clusters)) if row["what"] == "clusters"]

    def shape(self, m):
        """KV heads, query heads of each, bytes of q k v, and of a key and value of all heads."""
        c = self.configs[m]
        heads, kv = c["num_attention_heads"], c.get("num_key_value_heads", c["num_attention_heads"])
        head_dim = c.get("head_dim") or c["hidden_size"] // heads
        return kv, heads // kv, 2 * c["hidden_size"] * head_dim * (heads + 2 * kv), 4 * kv * head_dim

    def at(self, amount, kv, members, most, of_a_cta):
        """Seconds for bytes that clusters of some heads read in waves."""
        heads = [min(left, most) for left in range(kv, 0, -most)]
        return sum(amount * n / kv / min(self.stream, of_a_cta * n * members) for n in heads)

    def block(self, m, form, batch=1, old=False):
        """Seconds of a layer's q k v, keys and, with it, projection, by the new rates or the old."""
        kv, group, qkv, key = self.shape(m)
        cluster = int(re.search(r"cluster=(\d+)", form)[1])
        parts = int((re.search(r"parts=(\d+)", form) or [0, 1])[1])
        members, weights = cluster * parts, self.like["cta_stream"] if old else self.weights
        keys = (self.like["cta_keys"] if old else self.keys)[3 if batch > 1 else {1: 0, 2: 1}.get(group, 2)]
        most = max(1, min(kv, self.clusters[cluster - 1] // parts))
        seconds = self.at(qkv, kv, members, most, weights) + self.at(batch * KEYS * key, kv, members, most, keys)
        if "scope=projected" in form:
            c = self.configs[m]
            seconds += self.at(2 * c["hidden_size"] * kv * group * (key // 4 // kv), kv, members, most, weights)
        return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--braid", default=str(ROOT / "build/release/bin/braid"))
    parser.add_argument("--like", default=str(ROOT / "profiles/decode/h100.json"))
    parser.add_argument("--clusters", help="the JSON file of bench_cuda_cluster: how many clusters run at once")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--device", default="", help="what the file says of the GPU")
    args = parser.parse_args()
    rates = json.load(open(args.like))
    rates["device"] = args.device or rates["device"]
    big, middle, small = models = ("llama-2-7b", "llama-3.2-1b", "qwen3-0.6b")
    configs = {m: json.load(open(ROOT / f"configs/{m}.json")) for m in models}
    layers = {m: configs[m]["num_hidden_layers"] for m in models}

    relays = [run(args, m, "relay") for m in models]
    rates["stream"] = read_stream(relays[0][1], configs[big])
    more = scale([(s, read, seams) for s, read, seams, _, _ in relays])
    rates["relay_seam"] *= more
    rates["relay_bare"] *= more
    seam = {}  # by "several tokens": seconds of a seam over those of --like
    for several, name, steps in ((False, "launch_seam", [(m, 1) for m in models]),
                                 (True, "panel_seam", [(big, 16), (middle, 4)])):
        times = [run(args, m, "apart", batch) for m, batch in steps]
        seam[several] = scale([(s, read, seams) for s, read, seams, _, _ in times])
        rates[name] *= seam[several]

    # A CTA's rates, where few CTAs read: of keys by the longer context, of weights by what is left.
    reads = Reads(args, dict(rates), configs)
    reads.stream = rates["stream"]
    for at, (m, n) in enumerate(((big, 1), (small, 2), (middle, 2))):
        near, far = (run(args, m, f"fused:cluster={n}", keys=keys) for keys in (KEYS, LONG))
        kv, _, qkv, key = reads.shape(m)
        reads.keys[at] = layers[m] * (LONG - KEYS) * key / (kv * n) / (far[0] - near[0])
        if m == big:
            s, read, seams, exchanges, _ = near
            left = (s - read - seam[False] * seams - exchanges) / layers[m] + reads.block(m, near[4], old=True)
            reads.weights = qkv / kv / (left - KEYS * key / kv / reads.keys[0])
    few, many = (run(args, big, "fused:cluster=3", 16, keys)[0] for keys in (KEYS // 4, KEYS))
    kv, _, _, key = reads.shape(big)
    reads.keys[3] = layers[big] * 16 * (KEYS - KEYS // 4) * key / (kv * 3) / (many - few)
    rates["cta_stream"], rates["cta_keys"], rates["clusters"] = reads.weights, reads.keys, reads.clusters

    def block(m, form, batch=1):
        """Seconds of a step, those of bytes and seams, and the cluster."""
        s, read, seams, _, chosen = run(args, m, form, batch)
        read += layers[m] * (reads.block(m, chosen, batch) - reads.block(m, chosen, batch, old=True))
        return s, read + seam[batch > 1] * seams, int(re.search(r"cluster=(\d+)", chosen)[1])

    def exchange(m, n):
        return layers[m] * (rates["fused_seam"] + rates["fused_cta"] * n)

    two, three = block(big, "fused:cluster=2"), block(big, "fused:cluster=3")
    singles = [(big, two), (big, three)] + [(m, block(m, "fused")) for m in (middle, small)]
    more = scale([(s, known, exchange(m, n)) for m, (s, known, n) in singles])
    rates["fused_seam"] *= more
    rates["fused_cta"] *= more
    batches = [(m, block(m, "fused", batch)) for m, batch in ((big, 16), (middle, 4))]
    rates["fused_batch"] *= scale([(s, known + exchange(m, n), layers[m] * rates["fused_batch"])
                                   for m, (s, known, n) in batches])
    # Differences within a model: what its bytes take beyond their price cancels.
    beyond = three[0] / (three[1] + exchange(big, 3))
    waves, known, n = block(big, "fused:cluster=6")  # 32 heads in two
    rates["fused_wave"] = max(0, (waves / beyond - known - exchange(big, n)) / layers[big])
    memory = block(big, "fused:cluster=2,exchange=memory")[0]
    rates["memory_share"] = max(0, (memory - two[0]) / exchange(big, 2))
    parts, known, n = block(middle, "fused:cluster=2,parts=8")
    rates["parts_seam"] = max(0, (parts - known - exchange(middle, n)) / layers[middle])
    words, known, _ = block(big, "fused:cluster=3,scope=projected")
    rates["words_seam"] = max(0, (words - three[0] - known + three[1]) / layers[big])
    for name, steps in (("scores_sum", [(big, 2)]), ("scores_group", [(small, 4), (middle, 2)])):
        points = []
        for m, n in steps:
            # A sum for every eight slots of 8 KB, with keys and values of head_dim / n elements.
            config = configs[m]
            head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
            heads, keys = (run(args, m, f"fused:cluster={n},split={split}", keys=LONG)[0]
                           for split in ("head", "token"))
            sums = layers[m] * -(-LONG // (8 * 8192 // (4 * head_dim // n)))
            points.append((heads, keys, sums * (1 if m == big else math.log2(n))))
        rates[name] = scale(points)
    rates["cta_keys"] = [float(f"{v:.3g}") for v in rates["cta_keys"]]
    rates = {k: float(f"{v:.3g}") if isinstance(v, float) else v for k, v in rates.items()}
    print(json.dumps(rates, indent=2))


if __name__ == "__main__":
    main()
