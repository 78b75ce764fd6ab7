#!/usr/bin/env python3
"""Measures Braid and llama.cpp side by side and prints a table in markdown.

Both run on the same cores, with the same threads, on the same file, in turns: each round runs every
program once, so that what else the machine does hits them alike. The peer is built from the PyPI
package llama-cpp-python for this CPU and runs with flash attention off and on; the better of the
two is compared. Numbers are medians over the rounds, with the smallest and the largest.

  tools/bench_peer.py                              the demo model, all cores, 5 rounds
  tools/bench_peer.py -m MODEL.gguf --threads 2 --rounds 9
"""

import argparse
import ctypes
import json
import mmap
import os
import pathlib
import platform
import resource
import shlex
import statistics
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True

import fetch_model  # noqa: E402
from peer import build as peer_build  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT_SECONDS = 600
DEPTH = 1024
START_PROMPT = "The sea was calm when the two of them left the harbour, and nobody saw them go."
START_TOKENS = 8
# About 512 tokens for the peak of memory, with 64 more generated.
LONG_PROMPT = " ".join([START_PROMPT] * 27)
LONG_TOKENS = 64


class BenchError(Exception):
    pass


class Runner:
    """Starts programs on the chosen cores alone."""

    def __init__(self, cores):
        self.cores = cores

    def start(self, command, **options):
        return subprocess.Popen([str(part) for part in command],
                                preexec_fn=lambda: os.sched_setaffinity(0, self.cores), **options)

    def output_of(self, command):
        with self.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                        stdin=subprocess.DEVNULL, text=True) as child:
            try:
                out, err = child.communicate(timeout=LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                raise BenchError(f"{shlex.join(map(str, command))}: over {LIMIT_SECONDS} s") from None
        if child.returncode != 0:
            raise BenchError(f"{shlex.join(map(str, command))}: ended with {child.returncode}\n{err}")
        return out

    def first_output(self, command, text):
        """(seconds from the start of the process to its first byte of output, peak RSS in MB)."""
        began = time.perf_counter()
        child = self.start(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                           stdin=subprocess.PIPE)
        deadline = threading.Timer(LIMIT_SECONDS, child.kill)
        deadline.start()
        child.stdin.write(text.encode())
        child.stdin.close()
        byte = os.read(child.stdout.fileno(), 1)
        seconds = time.perf_counter() - began
        while os.read(child.stdout.fileno(), 1 << 16):
            pass
        _, status, usage = os.wait4(child.pid, 0)
        deadline.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        child.stdout.close()
        if child.returncode != 0 or not byte:
            raise BenchError(f"{shlex.join(map(str, command))}: ended with {child.returncode}, "
                             f"{'some' if byte else 'no'} output")
        # A child's peak counts what it was before exec: a copy of this program.
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if usage.ru_maxrss <= own:
            raise BenchError(f"{command[0]}: a peak of {usage.ru_maxrss} KiB cannot be told from "
                             f"this program's own, {own} KiB")
        return seconds, usage.ru_maxrss * 1024 / 1e6


class Braid:
    def __init__(self, program, args):
        self.program, self.args = program, args

    def rates(self, runner, depth, ranks=1):
        """{name: tokens per second} of one repetition."""
        command = [self.program, "bench", "-m", self.args.model, "-p", "512" if depth == 0 else "0",
                   "-n", "128", "-d", depth, "-r", "1", "--tp", ranks, "--threads",
                   self.args.threads // ranks, "--json"]
        found = json.loads(runner.output_of(command))["tests"]
        return {test["name"].split("@")[0].strip(): test["tokens_per_s"] for test in found}

    def start(self, runner, prompt, count):
        return runner.first_output([self.program, "run", "-m", self.args.model, "--threads",
                                    self.args.threads, "--temperature", "0", "-n", count], prompt)


class Peer:
    def __init__(self, folder, flash, args):
        self.folder, self.flash, self.args = folder, flash, args

    def rates(self, runner, depth):
        tests = ["-p", "512" if depth == 0 else "0", "-n", "128", "-d", depth]
        command = [self.folder / "llama-bench", "-m", self.args.model, *tests, "-r", "1", "-t",
                   self.args.threads, "-fa", self.flash, "-o", "json"]
        found = json.loads(runner.output_of(command))
        return {f"pp{t['n_prompt']}" if t["n_prompt"] else f"tg{t['n_gen']}": t["avg_ts"]
                for t in found}

    def start(self, runner, prompt, count):
        return runner.first_output([self.folder / "peer_first_token", self.args.model,
                                    self.args.threads, self.flash, count], prompt)


def resident_share(path):
    """The share of a file that is in the page cache."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        with mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ | mmap.PROT_WRITE,
                       flags=mmap.MAP_PRIVATE) as mapped:
            pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
            state = (ctypes.c_ubyte * pages)()
            anchor = (ctypes.c_char * size).from_buffer(mapped)
            libc = ctypes.CDLL(None, use_errno=True)
            failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(anchor)), ctypes.c_size_t(size),
                                  state)
            del anchor
    return None if failed else sum(page & 1 for page in state) / pages


def evict(paths):
    """Drops the files from the page cache; returns the share that stayed."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3")
    except OSError:
        for path in paths:
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return resident_share(paths[0])


def progress(text):
    print(text, file=sys.stderr, flush=True)


class Samples:
    """Values by (program, what), one per round."""

    def __init__(self):
        self.values = {}

    def add(self, program, what, value):
        self.values.setdefault((program, what), []).append(value)

    def median(self, program, what):
        return statistics.median(self.values[program, what])

    def shown(self, program, what):
        values = self.values[program, what]
        digits = 0 if min(values) >= 100 else 1
        return (f"{statistics.median(values):.{digits}f} "
                f"({min(values):.{digits}f}..{max(values):.{digits}f})")


def measure(args, runner, braid, peers, samples):
    everyone = {"braid": braid, **peers}
    share = None
    for index in range(args.rounds):
        # A turned order: nobody always runs after the same neighbour.
        names = list(everyone)[index % len(everyone):] + list(everyone)[:index % len(everyone)]
        for name in names:
            progress(f"round {index + 1} of {args.rounds}: {name}")
            rates = everyone[name].rates(runner, 0)
            samples.add(name, "pp512", rates["pp512"])
            samples.add(name, "tg128", rates["tg128"])
            samples.add(name, "tg128 at depth", everyone[name].rates(runner, DEPTH)["tg128"])
        if args.threads % 2 == 0:
            samples.add("braid", "tg128 on 2 ranks", braid.rates(runner, 0, ranks=2)["tg128"])
        for name in names:
            share = evict([args.model, args.braid, *args.peer_files])
            seconds, _ = everyone[name].start(runner, START_PROMPT, START_TOKENS)
            samples.add(name, "cold start", 1000 * seconds)
        for name in names:
            seconds, _ = everyone[name].start(runner, START_PROMPT, START_TOKENS)
            samples.add(name, "warm start", 1000 * seconds)
        for name in names:
            samples.add(name, "peak memory", everyone[name].start(runner, LONG_PROMPT, LONG_TOKENS)[1])
    return share


ROWS = [  # what, how it is called, unit, whether more is better, the target
    ("pp512", "prompt of 512 tokens", "tokens/s", True, ">= 1.00"),
    ("tg128", "decode, depth 0", "tokens/s", True, ">= 1.00"),
    ("tg128 at depth", f"decode, depth {DEPTH}", "tokens/s", True, ">= 1.00"),
    ("cold start", "first token, cold start", "ms", False, "<= 1.00"),
    ("warm start", "first token, warm start", "ms", False, ""),
    ("peak memory", "peak memory (about 512 + 64 tokens)", "MB", False, "<= 1.10"),
]


def table(samples, peers):
    lines = ["| measure | unit | Braid | llama.cpp | its setting | Braid / llama.cpp | target |",
             "|---|---|---|---|---|---|---|"]
    for what, label, unit, more, target in ROWS:
        choose = max if more else min
        best = choose(peers, key=lambda name: samples.median(name, what))
        ratio = samples.median("braid", what) / samples.median(best, what)
        lines.append(f"| {label} | {unit} | {samples.shown('braid', what)} | "
                     f"{samples.shown(best, what)} | {best} | {ratio:.2f} | {target} |")
    if ("braid", "tg128 on 2 ranks") in samples.values:
        ratio = samples.median("braid", "tg128 on 2 ranks") / samples.median("braid", "tg128")
        lines += ["", f"Decode on 2 ranks of half the threads each: "
                      f"{samples.shown('braid', 'tg128 on 2 ranks')} tokens/s, {ratio:.2f} of one "
                      "rank with all of them (target >= 0.90)."]
    return "\n".join(lines)


def cpu_name():
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def parse_args():
    cores = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=pathlib.Path, default=fetch_model.default_target())
    parser.add_argument("--threads", type=int, default=len(cores), help="default: all cores")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--braid", type=pathlib.Path, default=ROOT / "build/release/bin/braid")
    parser.add_argument("--peer-cache", type=pathlib.Path, default=peer_build.default_cache())
    parser.add_argument("--jobs", type=int, default=len(cores), help="of the peer's build")
    parser.add_argument("--json", type=pathlib.Path, help="write all samples into this file")
    parser.add_argument("--build-only", action="store_true", help="build the peer and stop")
    args = parser.parse_args()
    if not 1 <= args.threads <= len(cores):
        parser.error(f"--threads {args.threads}: this process may use {len(cores)} cores")
    if args.rounds < 1:
        parser.error(f"--rounds {args.rounds}: at least 1")
    for path in [args.model] + ([] if args.build_only else [args.braid]):
        if not path.is_file():
            parser.error(f"{path}: no such file (make build and tools/fetch_model.py make it)")
    return args, set(cores[:args.threads])


def main():
    args, cores = parse_args()
    try:
        folder, compiled = peer_build.find_or_build(args.peer_cache, args.model, args.jobs)
        if args.build_only:
            print(folder)
            return
        args.peer_files = [folder / "peer_first_token", folder / "llama-bench"]
        load = os.getloadavg()[0]
        if load > 0.5:
            progress(f"the machine is busy (load {load:.1f}): the numbers will not be fair, least of "
                     "all to programs whose threads wait for each other")
        runner, samples = Runner(cores), Samples()
        peers = {f"-fa {flash}": Peer(folder, flash, args) for flash in (0, 1)}
        share = measure(args, runner, Braid(args.braid, args), peers, samples)
    except (BenchError, peer_build.PeerError, OSError) as error:
        sys.exit(f"bench_peer: {error}")
    print(table(samples, peers))
    print(f"\n{cpu_name()}, {args.threads} threads on as many cores, {args.rounds} rounds in "
          f"turns; {args.model.name}; llama.cpp of {peer_build.PACKAGE} built with {compiled}; "
          f"before a cold start {share:.0%} of the model was in the page cache; load of the machine "
          f"before the first round {load:.1f}. Medians, with the smallest and the largest.")
    print(f"\n    {shlex.join(['tools/bench_peer.py', *sys.argv[1:]])}")
    if args.json:
        args.json.write_text(json.dumps({f"{program}: {what}": values for (program, what), values
                                         in samples.values.items()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
