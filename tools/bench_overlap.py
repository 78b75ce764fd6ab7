#!/usr/bin/env python3
"""Strategies beside each other on emulated links: speed, the share of communication that is hidden, and what auto takes.

For each number of tokens in a step, every strategy runs in turns for some rounds; a table of medians, relative to sequential,
follows. The shares are those of the traces. Two ranks of one thread need two cores, and more for what moves the bytes.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
STRATEGIES = ["sequential", "overlap", "nanoflow", "gemm_collective", "tokenweave", "auto"]


def run(options, tokens: int, strategy: str, trace: str | None) -> tuple[float, str]:
    command = [*options.prefix.split(), options.braid, "bench", "-m", options.model, "-p", str(tokens), "-n", "0", "--chunk",
               str(tokens), "-r", "2", "--tp", str(options.tp), "--threads", "1", "--schedule", strategy, "--json", "--explain",
               "--link-gbps", str(options.gbps), "--link-us", str(options.us)]
    if trace:
        command += ["--trace", trace]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    report = json.loads(done.stdout)
    chosen = [line.split(": ")[1].split(";")[0] for line in done.stderr.splitlines() if "keys each" in line]
    return statistics.median(report["tests"][0]["samples"]), chosen[-1] if chosen else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--braid", default=str(ROOT / "build/release/bin/braid"))
    parser.add_argument("--tokens", default="8,32,128,512,1024,2048,4096")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--gbps", type=float, default=0.25)
    parser.add_argument("--us", type=float, default=20)
    parser.add_argument("--prefix", default="", help="before each command, 'chrt -r 1' say")
    options = parser.parse_args()
    print(f"{options.tp} ranks of one thread, links of {options.gbps} GB/s + {options.us} us; tokens/s, and times sequential\n")
    print("| tokens | " + " | ".join(STRATEGIES) + " | auto took | hidden by overlap, tokenweave |")
    print("|---|" + "---|" * (len(STRATEGIES) + 2))
    for tokens in map(int, options.tokens.split(",")):
        speed = {s: [] for s in STRATEGIES}
        took = ""
        for _ in range(options.rounds):
            for strategy in STRATEGIES:
                value, chosen = run(options, tokens, strategy, None)
                speed[strategy].append(value)
                took = chosen or took
        shares = []
        for strategy in ("overlap", "tokenweave"):
            with tempfile.NamedTemporaryFile(suffix=".json") as trace:
                run(options, tokens, strategy, trace.name)
                summary = json.load(open(trace.name))["otherData"]
            shares.append(f"{summary['overlap_share']:.0%}" if summary["hideable_seconds"] > 0 else "-")
        base = statistics.median(speed["sequential"])
        cells = [f"{statistics.median(speed[s]):.0f} ({statistics.median(speed[s]) / base:.2f})" for s in STRATEGIES]
        print(f"| {tokens} | " + " | ".join(cells) + f" | {took} | {', '.join(shares)} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
