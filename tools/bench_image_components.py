#!/usr/bin/env python3
"""Times PyTorch on what bench/image_components_bench.cc times: the peers of Braid's numbers.

  tools/bench_image_components.py decode 32 64 128   autoencoder, latents of side x side, f32
  tools/bench_image_components.py t5 2               layers of T5 XXL, 512 tokens, bf16 and f32

Needs torch, transformers and diffusers; runs on as many threads as --threads says, which is 2.
"""

import argparse
import logging
import time

import torch

logging.disable(logging.WARNING)


def best(run, rounds):
    """The shortest time of a run after the first (or of the only one, with no rounds), and the least
    time that its threads computed."""
    wall, busy = [], []
    for _ in range(rounds + 1):
        start, used = time.perf_counter(), time.process_time()
        run()
        wall.append(time.perf_counter() - start)
        busy.append(time.process_time() - used)
    return f"{min(wall[-max(rounds, 1):]) * 1e3:.0f} ms, {min(busy[-max(rounds, 1):]) * 1e3:.0f} ms of all threads"


def decode(side, rounds):
    from diffusers import AutoencoderKL

    vae = AutoencoderKL(
        block_out_channels=(128, 256, 512, 512), latent_channels=16, layers_per_block=2,
        down_block_types=4 * ("DownEncoderBlock2D",), up_block_types=4 * ("UpDecoderBlock2D",),
        use_quant_conv=False, use_post_quant_conv=False)
    z = torch.randn(1, 16, side, side)
    for name in ("contiguous_format", "channels_last"):
        model = vae.to(memory_format=getattr(torch, name))
        x = z.to(memory_format=getattr(torch, name))
        print(f"decode {side}: {best(lambda: model.decode(x), rounds)}, {name}", flush=True)


def t5(layers, rounds):
    from transformers import T5Config, T5EncoderModel

    config = T5Config(d_model=4096, d_ff=10240, num_layers=layers, num_heads=64, d_kv=64,
                      feed_forward_proj="gated-gelu")
    model = T5EncoderModel(config)
    ids = torch.randint(0, 32000, (1, 512))
    for dtype in (torch.float32, torch.bfloat16):
        model = model.to(dtype)
        print(f"t5 {layers} layers: {best(lambda: model(ids), rounds)}, {dtype}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["decode", "t5"])
    parser.add_argument("sizes", nargs="+", type=int)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with torch.inference_mode():
        for size in options.sizes:
            globals()[options.what](size, options.rounds)


if __name__ == "__main__":
    main()
