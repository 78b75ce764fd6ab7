#!/usr/bin/env python3
"""Measures `braid serve` beside llama.cpp's server and beside `braid bench`, and prints tables in
markdown.

  tools/bench_server_peer.py                      the demo model, 1, 8 and 32 clients, 3 rounds
  tools/bench_server_peer.py --no-peer            the server's cost alone

The load is that of `braid bench serve`: a closed loop of so many clients, prompts of random words,
answers of a fixed length. In each round every server runs once for each number of clients, started
afresh, one at a time, so that what else the machine does hits both alike; numbers are medians over
the rounds. The peer is built from the PyPI package llama-cpp-python. Both get all cores.

The server's cost is what it loses to `braid bench` with the same rows, tokens a prompt (the chat
template's too) and answer length, for as many requests as there are clients: rows over the median time between two tokens, and over the
mean time per output token, which holds the prompts of requests that came later.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

import served  # noqa: E402
from peer import build as peer_build  # noqa: E402


def run(command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                            timeout=1800, check=False)
    if result.returncode != 0:
        sys.exit(f"{command[0]} {command[1]} ended with {result.returncode}: {result.stderr[-500:]}")
    return json.loads(result.stdout)


def load(o, server, clients, requests, input_len):
    return run([o.braid, "bench", "serve", "--url", server.url, "-n", requests, "--concurrency",
                clients, "--input-len", input_len, "--output-len", o.output_len, "--ignore-eos",
                "--json"])


def engine_seconds(server):
    """Steps, and the time of the engine's thread beside them."""
    return [server.metric(f"braid:{name}_total") for name in ("steps", "step_host_seconds")]


def serve(o, name, clients, folder):
    port = served.free_port()
    threads = len(os.sched_getaffinity(0))
    context = 64 * ((o.input_len + o.output_len) // 64 + 2)
    if name == "braid":
        command = [o.braid, "serve", "-m", o.model, "--port", port, "--log", "none",
                   "--max-running", clients, "--max-model-len", context]
    else:
        command = [o.peer, "-m", o.model, "--port", port, "-t", threads, "-np", clients,
                   "-c", context * clients, "--log-disable"]
    return served.serve(command, port, f"{folder}/{name}.log")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("-m", "--model", default=served.demo_model())
    parser.add_argument("--braid", default=served.BRAID)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--requests", type=int, default=2, help="of each client")
    parser.add_argument("--input-len", type=int, default=128)
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-peer", action="store_true", help="measure the server's cost alone")
    parser.add_argument("--cache", type=pathlib.Path, default=peer_build.default_cache())
    parser.add_argument("-j", "--jobs", type=int, default=2)
    o = parser.parse_args()
    if not o.no_peer:
        o.peer = peer_build.find_or_build_server(o.cache, o.jobs)
    results = {}  # (name, clients): reports
    cost = {}     # (what, clients): tokens/s
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(o.rounds):
            for clients in o.clients:
                for name in ("braid",) if o.no_peer else ("braid", "llama.cpp"):
                    with serve(o, name, clients, folder) as server:
                        if not o.no_peer:
                            results.setdefault((name, clients), []).append(
                                load(o, server, clients, max(4, o.requests * clients),
                                     o.input_len))
                        if name == "braid":
                            before = engine_seconds(server)
                            times = load(o, server, clients, clients, 16)
                            steps, seconds = (b - a for a, b in zip(before, engine_seconds(server)))
                            for key in ("median_itl_ms", "mean_tpot_ms"):
                                cost.setdefault((key, clients), []).append(
                                    1e3 * clients / times[key])
                            cost.setdefault(("thread", clients), []).append(1e6 * seconds / steps)
                            context = round(times["total_input_tokens"] / times["completed"])
                bench = run([o.braid, "bench", "-m", o.model, "-p", 0, "-n", o.output_len, "-d",
                             context, "-b", clients, "-r", 1, "--json"])
                cost.setdefault(("bench", clients), []).append(bench["tests"][-1]["tokens_per_s"])

    if not o.no_peer:
        print_peer(o, results)
    print("\n| rows | decode, tokens/s: bench | serve, between tokens | cost | with prompts | cost |"
          " engine's thread, us a step |\n|---:|---:|---:|---:|---:|---:|---:|")
    for clients in o.clients:
        bench, itl, tpot, thread = (
            statistics.median(cost[what, clients])
            for what in ("bench", "median_itl_ms", "mean_tpot_ms", "thread"))
        print(f"| {clients} | {bench:.1f} | {itl:.1f} | {100 * (1 - itl / bench):.1f}% "
              f"| {tpot:.1f} | {100 * (1 - tpot / bench):.1f}% | {thread:.0f} |")


def print_peer(o, results):
    def median(name, clients, key):
        return statistics.median(r[key] for r in results[name, clients])

    print(f"prompts of {o.input_len} tokens, answers of {o.output_len}, {o.rounds} rounds\n")
    print("| clients | tokens/s: Braid | llama.cpp | ratio | TTFT P50, P99 ms: Braid | llama.cpp |"
          " failed |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for clients in o.clients:
        rates = [median(name, clients, "output_throughput") for name in ("braid", "llama.cpp")]
        ttfts = [", ".join(f"{median(name, clients, key):.0f}"
                           for key in ("median_ttft_ms", "p99_ttft_ms"))
                 for name in ("braid", "llama.cpp")]
        failed = sum(r["failed"] for name in ("braid", "llama.cpp") for r in results[name, clients])
        print(f"| {clients} | {rates[0]:.1f} | {rates[1]:.1f} | {rates[0] / rates[1]:.2f} "
              f"| {ttfts[0]} | {ttfts[1]} | {failed} |")


if __name__ == "__main__":
    main()
