#!/usr/bin/env python3
"""How far apart runs of `braid image` or `braid video` are, from what --dump-latents wrote.

  braid image --random-weights configs/flux-1-dev.json --steps 4 --device cuda:0 --dump-latents one
  braid image ... --device cuda:0,1 --sp ring --dump-latents ring
  braid image ... --device cuda:0 --dtype f32 --dump-latents f32
  tools/compare_latents.py one ring --bound f32

Prints for each file the difference from the first file: of what each step adds, over its root mean
square (the first step's is the prediction's from equal latents), and of the last latents. --bound:
a file whose difference from the first file no other may exceed, at any step; status 1 says that one
does. A file without differences is equal, number by number.
"""

import argparse
import array
import json
import math
import struct
import sys


def read(path):
    """Latents of each step, of all pictures one after another; step 0 is the noise."""
    data = open(path, "rb").read()
    size, = struct.unpack_from("<Q", data)
    steps = {}
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    for name, tensor in sorted(header.items()):
        begin, end = (8 + size + at for at in tensor["data_offsets"])
        values = array.array("f", data[begin:end])
        steps.setdefault(int(name.split(".")[1]), array.array("f")).extend(values)
    return [steps[step] for step in range(len(steps))]


def rms(values):
    return math.sqrt(math.fsum(v * v for v in values))


def relative(got, want):
    return rms(a - b for a, b in zip(got, want)) / rms(want)


def added(steps):
    return [[a - b for a, b in zip(after, before)] for before, after in zip(steps, steps[1:])]


def differences(got, want):
    if [len(x) for x in got] != [len(x) for x in want]:
        sys.exit("compare_latents: other numbers of steps or latents")
    return [relative(a, b) for a, b in zip(added(got), added(want))] + [relative(got[-1], want[-1])]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("one")
    parser.add_argument("other", nargs="+")
    parser.add_argument("--bound")
    options = parser.parse_args()
    one = read(options.one)
    print("| file | " + " | ".join(f"step {i}" for i in range(1, len(one))) + " | last latents |")
    print("|---|" + len(one) * "---:|")

    def show(path):
        found = differences(read(path), one)
        print(f"| {path} | " + " | ".join(f"{d:.2e}" for d in found) + " |", flush=True)
        return found
    bound = show(options.bound) if options.bound else [math.inf] * len(one)
    found = [show(path) for path in options.other]
    if any(not d <= most for each in found for d, most in zip(each, bound)):
        sys.exit("compare_latents: a difference is larger than the bound's")


if __name__ == "__main__":
    main()
