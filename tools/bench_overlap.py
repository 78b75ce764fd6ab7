#!/usr/bin/env python3
"""Strategies beside each other on emulated links: speed, what each wins of the time that communication costs, and what auto takes.

For each number of tokens in a step, every strategy runs in turns for some rounds, and so does sequential with communication that does
nothing; a table of medians, relative to sequential, follows. The gain of a strategy is (sequential - its time) / (sequential - time
without communication). Two ranks of one thread need two cores, and more for what moves the bytes.
"""

import argparse
import json
import pathlib
import shlex
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
STRATEGIES = ["sequential", "overlap", "nanoflow", "gemm_collective", "tokenweave", "auto"]
SILENT = "no communication"


def run(options, tokens: int, strategy: str) -> tuple[float, str]:
    """Tokens per second, and what auto took."""
    command = [*options.prefix.split(), options.braid, "bench", *options.model, "-p", str(tokens), "-n", "0", "--chunk",
               str(tokens), "-r", "2", "--tp", str(options.tp), "--json", "--explain"]
    command += ["--schedule", "sequential", "--no-communication"] if strategy == SILENT else ["--schedule", strategy]
    command += ["--device", options.device] if options.device != "cpu" else ["--threads", "1"]
    if options.gbps > 0:
        command += ["--link-gbps", str(options.gbps), "--link-us", str(options.us)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    report = json.loads(done.stdout)
    chosen = [line.split(": ")[1].split(";")[0] for line in done.stderr.splitlines() if "keys each" in line]
    return statistics.median(report["tests"][0]["samples"]), chosen[-1] if chosen else ""


def gain(tokens: int, sequential: float, silent: float, speed: float) -> str:
    """Of speeds in tokens per second: what is won of the time that communication costs."""
    cost = tokens / sequential - tokens / silent
    return f"{(tokens / sequential - tokens / speed) / cost:.0%}" if cost > 0.01 * tokens / sequential else "-"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a model, or options of braid bench that name it: '--config FILE --random-weights'")
    parser.add_argument("--braid", default=str(ROOT / "build/release/bin/braid"))
    parser.add_argument("--device", default="cpu", help="as of braid bench; GPUs have their own links: --gbps 0")
    parser.add_argument("--tokens", default="8,32,128,512,1024,2048,4096")
    parser.add_argument("--strategies", default=",".join(STRATEGIES[1:]))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--gbps", type=float, default=0.25)
    parser.add_argument("--us", type=float, default=20)
    parser.add_argument("--prefix", default="", help="before each command, 'chrt -r 1' say")
    options = parser.parse_args()
    options.model = shlex.split(options.model) if options.model.startswith("-") else ["-m", options.model]
    strategies = options.strategies.split(",")
    links = f", links of {options.gbps} GB/s + {options.us} us" if options.gbps > 0 else ""
    print(f"{options.tp} ranks on {options.device}{links}; tokens/s (times sequential; gain)\n")
    print("| tokens | sequential | no communication | " + " | ".join(strategies) + " | auto took |")
    print("|---|" + "---|" * (len(strategies) + 3))
    for tokens in map(int, options.tokens.split(",")):
        turns = ["sequential", SILENT, *strategies]
        speeds = {s: [] for s in turns}
        took = ""
        for _ in range(options.rounds):
            for strategy in turns:
                value, chosen = run(options, tokens, strategy)
                speeds[strategy].append(value)
                took = chosen if strategy == "auto" else took
        speed = {s: statistics.median(values) for s, values in speeds.items()}
        base, silent = speed["sequential"], speed[SILENT]
        cells = [f"{base:.0f}", f"{silent:.0f} ({silent / base:.2f})"]
        cells += [f"{speed[s]:.0f} ({speed[s] / base:.2f}; {gain(tokens, base, silent, speed[s])})" for s in strategies]
        print(f"| {tokens} | " + " | ".join(cells) + f" | {took} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
