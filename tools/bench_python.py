#!/usr/bin/env python3
"""Speed of decoding from Python beside `braid bench`, in turns, each in a process of its own.

    bench_python.py -m MODEL [--device cpu] [--program braid] [--tokens 128] [--pairs 10]

Both continue a prompt of one token. Prints each pair's ratio, its median, and the range that holds
the median with 95% confidence (of order statistics). Exits with 1 if the median is below --least.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys

DECODE = """
import sys, time, braid
model, device, tokens, warm = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with braid.LLM(model, device=device, max_num_seqs=1, max_model_len=2 * tokens) as llm:
    for n in (3, 3, tokens)[:warm] + (tokens,) * 3:
        begin = time.monotonic()
        params = braid.SamplingParams(max_tokens=n, ignore_eos=True, temperature=0)
        made = len(llm.generate([[1]], params)[0].outputs[0].tokens)
        seconds = time.monotonic() - begin
        assert made == n
        if n == tokens:
            print(n / seconds)
"""


def bench(o):
    run = subprocess.run([o.program, "bench", "-m", o.model, "--device", o.device, "-p", "0", "-n",
                          str(o.tokens), "-r", "3", "--json"], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    return statistics.median(json.loads(run.stdout)["tests"][0]["samples"])


def python(o):
    run = subprocess.run([sys.executable, "-c", DECODE, o.model, o.device, str(o.tokens), "2"],
                         capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    return statistics.median(map(float, run.stdout.split()))


def middle(values):
    """The ranks whose values hold the median with 95% confidence, as far as so many values can."""
    n = len(values)
    low, tail = 0, 0.5**n
    while tail + math.comb(n, low + 1) * 0.5**n <= 0.025:
        low += 1
        tail += math.comb(n, low) * 0.5**n
    ordered = sorted(values)
    return ordered[low], ordered[n - 1 - low]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--program", default="braid")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--least", type=float, default=0)
    o = parser.parse_args()
    ratios = []
    for pair in range(o.pairs):
        # The one that begins has the other's caches: they take turns in this, too.
        runs = [bench, python] if pair % 2 == 0 else [python, bench]
        speed = {run.__name__: run(o) for run in runs}
        ratios.append(speed["python"] / speed["bench"])
        print(f"bench {speed['bench']:8.1f}  python {speed['python']:8.1f} tokens/s  "
              f"ratio {ratios[-1]:.3f}", flush=True)
    median = statistics.median(ratios)
    low, high = middle(ratios)
    print(f"median of {o.pairs} ratios {median:.3f}, 95% within {low:.3f} to {high:.3f}")
    sys.exit(1 if median < o.least else 0)


if __name__ == "__main__":
    main()
