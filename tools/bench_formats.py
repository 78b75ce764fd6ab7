#!/usr/bin/env python3
"""Compares Braid and llama.cpp over weight formats: the demo model, requantized, in turns.

  tools/bench_formats.py --rounds 3 --threads 2       tokens per second, on a quiet machine
  tools/bench_formats.py --rounds 5 --cpu-time        user CPU time of one pinned core, on a shared one

Formats are q4_1 (the file as it is fetched), q4_0, q8_0, q4_k, q4_k_pad and bf16; tools/requantize.py
makes them beside the demo model and says what each holds. CPU time is that of three more repetitions
in one process than in another, so loading is not in it; it has no figure for decode at a depth. Of
flash attention off and on the peer's better is taken. Needs gguf and numpy (tools/requirements.txt).
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True

import bench_peer  # noqa: E402
import fetch_model  # noqa: E402
from peer import build as peer_build  # noqa: E402

TOOLS = pathlib.Path(__file__).resolve().parent
FORMATS = {"q4_1": None, "q4_0": ["--type", "q4_0"], "q8_0": ["--type", "q8_0"],
           "q4_k": ["--type", "q4_k"], "q4_k_pad": ["--type", "q4_k", "--pad"],
           "bf16": ["--type", "bf16"]}
MORE_REPETITIONS = 3


def model_of(name, demo):
    if FORMATS[name] is None:
        return demo
    path = demo.with_name(f"smollm2-135m-instruct-{name}.gguf")
    if not path.exists():
        bench_peer.progress(f"writing {path}")
        part = path.with_suffix(".part")
        subprocess.run([sys.executable, TOOLS / "requantize.py", demo, *FORMATS[name], "-o", part],
                       check=True, stdout=subprocess.DEVNULL)
        part.rename(path)
    return path


class Rates:
    """Tokens per second of one repetition: more is better."""
    whats = ["pp512", "tg128", f"tg128 at {bench_peer.DEPTH}"]

    def of(self, program, runner):
        found = program.rates(runner, 0)
        deep = program.rates(runner, bench_peer.DEPTH)
        return [found["pp512"], found["tg128"], deep["tg128"]]


class CpuTime:
    """Repetitions per second of user CPU time."""
    whats = ["pp512", "tg64"]

    def of(self, program, runner):
        return [MORE_REPETITIONS / (self.seconds(program, runner, test, 1 + MORE_REPETITIONS) -
                                    self.seconds(program, runner, test, 1))
                for test in (["-p", 512, "-n", 0], ["-p", 0, "-n", 64])]

    def seconds(self, program, runner, test, repetitions):
        common = ["-m", program.args.model, *test, "-r", repetitions]
        if isinstance(program, bench_peer.Peer):
            command = [program.folder / "llama-bench", *common, "-t", 1, "-fa", program.flash]
        else:
            command = [program.program, "bench", *common, "--threads", 1]
        child = runner.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise bench_peer.BenchError(f"{command}: ended with {child.returncode}")
        return usage.ru_utime


def compare(name, args, folder, method):
    """A row of the table: the median of the rounds' ratios, with the smallest and the largest."""
    args.model = model_of(name, args.demo)
    runner = bench_peer.Runner(args.cores)
    programs = [bench_peer.Braid(args.braid, args)]
    programs += [bench_peer.Peer(folder, flash, args) for flash in args.flash]
    values = [[] for _ in programs]
    for index in range(args.rounds):
        order = range(len(programs)) if index % 2 == 0 else reversed(range(len(programs)))
        for i in order:
            bench_peer.progress(f"{name}, round {index + 1} of {args.rounds}: program {i}")
            values[i].append(method.of(programs[i], runner))
    cells = []
    for what in range(len(method.whats)):
        series = [[round_values[what] for round_values in rounds] for rounds in values]
        peer = max(series[1:], key=statistics.median)
        ratios = [ours / theirs for ours, theirs in zip(series[0], peer)]
        cells.append(f"{statistics.median(series[0]):.4g} | {statistics.median(peer):.4g} | "
                     f"{statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})")
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def parse_args():
    cores = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(cores), help="default: all cores")
    parser.add_argument("--cpu-time", action="store_true", help="user CPU time of one core")
    parser.add_argument("--flash", type=int, nargs="+", choices=(0, 1), default=[0, 1],
                        help="the peer's settings of flash attention")
    parser.add_argument("--braid", type=pathlib.Path,
                        default=bench_peer.ROOT / "build/release/bin/braid")
    parser.add_argument("--peer-cache", type=pathlib.Path, default=peer_build.default_cache())
    args = parser.parse_args()
    args.threads = 1 if args.cpu_time else args.threads
    if not 1 <= args.threads <= len(cores) or args.rounds < 1:
        parser.error(f"--threads {args.threads} of {len(cores)} cores, --rounds {args.rounds}")
    args.cores = set(cores[-args.threads:])
    args.demo = fetch_model.default_target()
    for path in (args.demo, args.braid):
        if not path.is_file():
            parser.error(f"{path}: no such file (make build and make model make it)")
    return args


def main():
    args = parse_args()
    method = CpuTime() if args.cpu_time else Rates()
    try:
        folder, compiled = peer_build.find_or_build(args.peer_cache, args.demo, len(args.cores))
        unit = "repetitions per second of CPU time" if args.cpu_time else "tokens/s"
        print("| format | " + " | ".join(f"{what}: Braid | llama.cpp | ratio" for what in
                                         method.whats) + " |")
        print("|---" * (1 + 3 * len(method.whats)) + "|")
        for name in args.formats:
            compare(name, args, folder, method)
    except (bench_peer.BenchError, peer_build.PeerError, OSError,
            subprocess.CalledProcessError) as error:
        sys.exit(f"bench_formats: {error}")
    print(f"\n{bench_peer.cpu_name()}, {args.threads} threads, {args.rounds} rounds in turns, {unit}; "
          f"llama.cpp of {peer_build.PACKAGE} built with {compiled}; load {os.getloadavg()[0]:.1f}.")


if __name__ == "__main__":
    main()
