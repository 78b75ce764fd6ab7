#!/usr/bin/env python3
"""Makes a Flux.1 dev pipeline of full size with random weights in bf16 (34 GB), as diffusers lays it out.

  tools/make_full_size_pipeline.py FOLDER

For measurements of whole jobs: reading a prompt, steps, decoding, writing. Tokenizers are the tiny pipeline's. Names
and shapes are those of tests/golden/diffusion. A tensor repeats a row of random numbers, which rows of matrices meet at
other places each. Needs NumPy.
"""

import concurrent.futures
import json
import math
import os
import pathlib
import struct
import sys

import numpy

sys.dont_write_bytecode = True

import make_tiny_pipeline
from tiny_weights import write_json

NAMES = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/diffusion"
PERIOD = 4_000_037  # a prime: no matrix is as wide
SHARD = 2 << 30


def bf16(numbers):
    bits = numbers.astype(numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)


class Numbers:
    """Bytes of tensors in bf16: matrices by their width, norms' weights 1, biases 0."""

    def __init__(self):
        self.normal = numpy.random.default_rng(1).standard_normal(PERIOD, dtype=numpy.float32)
        self.made = {}

    def row(self, name, shape):
        key = "one" if len(shape) == 1 and name.endswith("weight") else "zero"
        if len(shape) > 1:
            key = 1.0 if "embed" in name and shape[0] > 20000 else 1 / math.sqrt(math.prod(shape[1:]))
        if key not in self.made:
            scale = {"one": 0, "zero": 0}.get(key, key)
            self.made[key] = bf16(self.normal * scale + (key == "one")).tobytes()
        return self.made[key]


def write_file(path, tensors, numbers):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors:
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb", buffering=0) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors:
            row, left = memoryview(numbers.row(name, shape)), 2 * math.prod(shape)
            while left > 0:
                left -= file.write(row[:left])


def shards(tensors):
    parts, size = [[]], 0
    for name, shape in tensors.items():
        if size > SHARD:
            parts.append([])
            size = 0
        parts[-1].append((name, shape))
        size += 2 * math.prod(shape)
    return parts


def component(folder, stem, model, numbers, jobs):
    for old in folder.glob("*.safetensors*"):
        old.unlink()
    write_json(folder / "config.json", model["config"])
    parts, index = shards(model["tensors"]), {}
    for i, part in enumerate(parts):
        name = f"{stem}.safetensors"
        if len(parts) > 1:
            name = f"{stem}-{i + 1:05}-of-{len(parts):05}.safetensors"
        for tensor, shape in part:
            numbers.row(tensor, shape)  # made once, before the threads
            index[tensor] = name
        jobs.append((folder / name, part, numbers))
    if len(parts) > 1:
        size = sum(2 * math.prod(shape) for shape in model["tensors"].values())
        write_json(folder / f"{stem}.safetensors.index.json",
                   {"metadata": {"total_size": size}, "weight_map": index})


def make(root):
    make_tiny_pipeline.make(root, "guided")
    flux = json.loads((NAMES / "flux_names.json").read_text())["dev"]
    others = json.loads((NAMES / "component_names.json").read_text())
    scheduler = json.loads((NAMES.parents[2] / "configs/flux-1-dev.json").read_text())["scheduler"]
    write_json(root / "scheduler/scheduler_config.json", scheduler)
    numbers, jobs = Numbers(), []
    others["vae"]["config"].update(_class_name="AutoencoderKL", norm_num_groups=32)
    component(root / "transformer", "diffusion_pytorch_model", flux, numbers, jobs)
    component(root / "text_encoder_2", "model", others["t5"], numbers, jobs)
    component(root / "text_encoder", "model", others["clip"], numbers, jobs)
    component(root / "vae", "diffusion_pytorch_model", others["vae"], numbers, jobs)
    with concurrent.futures.ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        for done in [pool.submit(write_file, *job) for job in jobs]:
            done.result()


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    try:
        make(pathlib.Path(sys.argv[1]))
    except OSError as error:
        sys.exit(f"make_full_size_pipeline: {error}")


if __name__ == "__main__":
    main()
