#!/usr/bin/env python3
"""diffusers on a GPU beside bench_cuda_flux: one step of Flux.1 with equal weights.

  tools/bench_image_torch.py configs/flux-1-dev.json --size 1024 --compile --velocity FILE

Weights are those of tools/random_weights.py, in bf16; inputs those of bench_cuda_flux. FILE is what
bench_cuda_flux --velocity wrote for the first --size: the difference of both velocities is printed.
Decoders: tools/bench_decoder_torch.py.
"""

import argparse
import array
import json
import math
import sys
import time

sys.dont_write_bytecode = True

import torch
from diffusers import FluxTransformer2DModel

import random_weights


def shifted(z, bits):
    """A logical shift of 64-bit integers, which torch has with a sign alone."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def signed(x):
    return x - (1 << 64) if x >= 1 << 63 else x


def fill(seed, name, parameter):
    """The numbers of random_weights.tensor, made on the GPU piece by piece."""
    if parameter.dim() == 1:
        return parameter.fill_(0 if name.endswith(".bias") else 1)
    flat, base = parameter.view(-1), signed(random_weights.tensor_seed(seed, name))
    piece = 1 << 25
    for begin in range(0, flat.numel(), piece):
        end = min(begin + piece, flat.numel())
        z = torch.arange(begin // 2 + 1, (end + 1) // 2 + 1, device=flat.device)
        z = z * signed(0x9E3779B97F4A7C15) + base
        z = (z ^ shifted(z, 30)) * signed(0xBF58476D1CE4E5B9)
        z = (z ^ shifted(z, 27)) * signed(0x94D049BB133111EB)
        z = z ^ shifted(z, 31)
        u = (shifted(z, 40) + 1).float() * 2 ** -24
        angle = (z & 0xFFFFFF).double() * (math.pi * 2 ** -23)
        radius = random_weights.STDDEV * torch.sqrt(-2 * torch.log(u))
        pairs = torch.stack([radius * angle.cos().float(), radius * angle.sin().float()], 1)
        flat[begin:end] = pairs.view(-1)[:end - begin].to(flat.dtype)


def with_weights(model, seed, device="cuda", dtype=torch.bfloat16):
    model = model.to_empty(device=device).to(dtype).eval()
    for name, parameter in model.named_parameters():
        fill(seed, name, parameter.data)
    return model


def normals(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def milliseconds(run, rounds):
    times = []
    for i in range(rounds + 2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        result = run()
        torch.cuda.synchronize()
        if i > 1:
            times.append(1e3 * (time.perf_counter() - start))
    return sorted(times)[len(times) // 2], result


def step_inputs(config, size, device="cuda", dtype=torch.bfloat16, text=512):
    side = size // 16
    ids = torch.zeros(side, side, 3)
    ids[..., 1] += torch.arange(side)[:, None]
    ids[..., 2] += torch.arange(side)[None, :]
    like = {"device": device, "dtype": dtype}
    return {"hidden_states": normals(3, 1, side * side, config["in_channels"]).to(**like),
            "encoder_hidden_states": normals(1, 1, text, config["joint_attention_dim"]).to(**like),
            "pooled_projections": normals(2, 1, config["pooled_projection_dim"]).to(**like),
            "timestep": torch.tensor([0.5]).to(**like), "guidance": torch.tensor([4.0]).to(device),
            "txt_ids": torch.zeros(text, 3).to(**like), "img_ids": ids.view(-1, 3).to(**like),
            "return_dict": False}


def relative(ours, theirs):
    ours, theirs = ours.double().view(-1), theirs.double().cpu().view(-1)
    return (ours - theirs).square().mean().sqrt() / theirs.square().mean().sqrt()


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--size", type=int, action="append", default=[])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--velocity")
    options = parser.parse_args()
    config = json.load(open(options.file))
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}", flush=True)
    torch.backends.cudnn.benchmark = True
    if options.size:
        with torch.device("meta"):
            model = FluxTransformer2DModel(**config["transformer"])
        model = with_weights(model, 1)
        for i, size in enumerate(options.size):
            inputs = step_inputs(config["transformer"], size)
            ms, (velocity,) = milliseconds(lambda: model(**inputs), options.rounds)
            print(f"step {size} x {size}: {ms:.2f} ms", flush=True)
            if i == 0 and options.velocity:
                ours = array.array("f", open(options.velocity, "rb").read())
                off = relative(torch.tensor(ours), velocity)
                print(f"difference of velocities: {off:.5f} of their root mean square")
        if options.compile:
            for block in (*model.transformer_blocks, *model.single_transformer_blocks):
                block.compile(fullgraph=True, dynamic=False)
            for size in options.size:
                inputs = step_inputs(config["transformer"], size)
                start = time.perf_counter()
                model(**inputs)
                torch.cuda.synchronize()
                first = time.perf_counter() - start
                ms, _ = milliseconds(lambda: model(**inputs), options.rounds)
                print(f"step {size} x {size}, torch.compile by block: {ms:.2f} ms, the first "
                      f"{first:.1f} s", flush=True)


if __name__ == "__main__":
    main()
