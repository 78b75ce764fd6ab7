#!/usr/bin/env python3
"""Decoders of diffusers on a GPU beside Braid's, with equal weights and latents: pixels and times.

  bench_cuda_flux configs/flux-1-dev.json --decode 1024 --decode 4096 --pixels FILE
  tools/bench_decoder_torch.py configs/flux-1-dev.json --size 1024 --size 4096 --pixels FILE \\
      --f32 --ways eager,compile
  bench_cuda_cogvideox configs/cogvideox-5b.json --decode 49 --pixels FILE
  tools/bench_decoder_torch.py configs/cogvideox-5b.json --size 720x480:49 --pixels FILE

Weights are those of tools/random_weights.py, in bf16. FILE is what the first program wrote: all
pixels are compared by quadrants of the picture. --f32 decodes in f32, too, without TF32 and without
tensors beyond 2^31 numbers where kernels of PyTorch may have a limit. The first size gives the
bound: no quadrant of a later size may be further off by a quarter, nor by a quarter further from f32
than diffusers' bf16; no pixel may be twice as far as the worst of the first size or of diffusers'
bf16. Status 1 says that a picture is beyond. Times have no copy to the host. --rounds 0: pixels
alone; --device cpu then does.
"""

import argparse
import array
import contextlib
import json
import math
import sys
from unittest import mock

sys.dont_write_bytecode = True

import torch
import torch.nn.functional as F

from bench_image_torch import milliseconds, normals, with_weights

MOST = 1 << 30  # numbers of a tensor in one call of --f32


def conv_by_strips(conv, x):
    """conv(x) of stride 1, some rows of pixels at a time."""
    (height, width), halo = x.shape[2:], conv.kernel_size[0] // 2
    rows = max(1, MOST // (max(x.shape[1], conv.out_channels) * width * x.shape[0]))
    if rows >= height:
        return conv._conv_forward(x, conv.weight, conv.bias)
    y = x.new_empty(x.shape[0], conv.out_channels, height, width)
    for row in range(0, height, rows):
        first, last = max(row - halo, 0), min(row + rows + halo, height)
        edges = (0, 0, max(halo - row, 0), max(row + rows + halo - height, 0))
        strip = F.pad(x[:, :, first:last], edges)
        y[:, :, row:row + rows] = F.conv2d(strip, conv.weight, conv.bias,
                                           padding=(0, conv.padding[1]))[:, :, :height - row]
    return y


def upsample(plain, x, scale_factor=None, mode="nearest", **rest):
    if x.dim() != 4 or scale_factor != 2.0 or mode != "nearest":
        return plain(x, scale_factor=scale_factor, mode=mode, **rest)
    b, c, h, w = x.shape
    return x[:, :, :, None, :, None].expand(b, c, h, 2, w, 2).reshape(b, c, 2 * h, 2 * w)


def attention_by_queries(q, k, v, **_):
    scale, out = 1 / math.sqrt(q.shape[-1]), torch.empty_like(q)
    for some, to in zip(q.split(2048, 2), out.split(2048, 2)):
        to.copy_(torch.softmax(some @ k.transpose(2, 3) * scale, -1) @ v)
    return out


@contextlib.contextmanager
def without_limits():
    plain = F.interpolate
    with mock.patch.object(torch.nn.Conv2d, "forward", conv_by_strips), \
            mock.patch.object(F, "interpolate", lambda *a, **k: upsample(plain, *a, **k)), \
            mock.patch.object(F, "scaled_dot_product_attention", attention_by_queries):
        yield


class Pictures:
    """AutoencoderKL of Flux.1."""
    layouts = ("channels last",)

    def __init__(self, config):
        from diffusers import AutoencoderKL
        self.config = config
        self.model = AutoencoderKL(**{**config, "down_block_types": 4 * ("DownEncoderBlock2D",),
                                      "up_block_types": 4 * ("UpDecoderBlock2D",)})

    def latents(self, size, _):
        C, (h, w) = self.config["latent_channels"], (size[1] // 8, size[0] // 8)
        z = normals(4, h, w, C) / self.config["scaling_factor"] + self.config["shift_factor"]
        return z.permute(2, 0, 1)[None]


class Videos:
    """AutoencoderKLCogVideoX."""
    layouts = ("contiguous", "channels last")

    def __init__(self, config):
        from diffusers import AutoencoderKLCogVideoX
        self.config = config
        self.model = AutoencoderKLCogVideoX(**config)

    def latents(self, size, frames):
        C = self.config["latent_channels"]
        z = normals(4, (frames - 1) // 4 + 1, size[1] // 8, size[0] // 8, C)
        return (z * (1 / self.config["scaling_factor"])).permute(3, 0, 1, 2)[None]


def frames_of(sample):
    """[F, H, W, 3] in f32."""
    sample = sample if sample.dim() == 5 else sample[:, :, None]
    return sample[0].permute(1, 2, 3, 0).float()


def differences(got, want):
    """Of quadrants, in root mean squares of `want`; the largest, and its frame, row and column."""
    quadrants = [(g - w).square().mean().sqrt() / w.square().mean().sqrt()
                 for g_half, w_half in zip(got.chunk(2, 1), want.chunk(2, 1))
                 for g, w in zip(g_half.chunk(2, 2), w_half.chunk(2, 2))]
    off = (got - want).abs().amax(3)
    at = int(off.argmax())
    H, W = off.shape[1:]
    return [float(q) for q in quadrants], float(off.max()), (at // (H * W), at // W % H, at % W)


class Comparison:
    """Prints differences, and counts those beyond the bound that the first size gives."""

    def __init__(self):
        self.bounds, self.beyond = {}, 0

    def show(self, title, what, got, want, peer=None):
        """`peer`: what diffusers' bf16 had, which `got` may exceed by a quarter."""
        quadrants, largest, at = differences(got, want)
        most, farthest = self.bounds.setdefault(what, (1.25 * max(quadrants), 2 * largest))
        if peer:
            most, farthest = min(most, 1.25 * max(peer[0])), max(farthest, 2 * peer[1])
        wrong = not (max(quadrants) <= most and largest <= farthest)
        self.beyond += wrong
        print(f"{title}, {what}: quadrants {' '.join(f'{100 * q:.3f}%' for q in quadrants)} of the "
              f"root mean square; largest {largest:.4f} at frame {at[0]}, row {at[1]}, column "
              f"{at[2]}{', BEYOND THE BOUND' if wrong else ''}", flush=True)
        return quadrants, largest


class Work:
    """What one --size says: 1024, 1024x768 or 720x480:49."""

    def __init__(self, family, text, device):
        size, _, frames = text.partition(":")
        sides, frames = [int(side) for side in size.split("x")], int(frames or 0)
        self.width, self.height = sides if len(sides) == 2 else 2 * sides
        self.name = str(frames or self.width)
        self.title = f"{self.width} x {self.height}" + (f", {frames} frames" if frames else "")
        self.latents = lambda: family.latents((self.width, self.height), frames).to(
            device, torch.bfloat16)


def attempt(title, run):
    """run(), or None and a line with PyTorch's reason."""
    try:
        return run()
    except (RuntimeError, NotImplementedError) as error:
        print(f"{title}: {str(error).splitlines()[0]}", flush=True)


def compare(model, work, prefix, f32, compared):
    z = work.latents()
    ours = array.array("f", open(f"{prefix}-{work.name}", "rb").read())
    ours = torch.frombuffer(ours, dtype=torch.float32).to(z.device)
    ours = ours.view(-1, work.height, work.width, 3)
    theirs = attempt(f"{work.title}, diffusers in bf16", lambda: frames_of(model.decode(z).sample))
    peer = None
    if f32:
        with without_limits():
            exact = attempt(f"{work.title}, diffusers in f32", lambda: frames_of(
                model.float().decode(z.float()).sample))
        model.bfloat16()
        if exact is not None and theirs is not None:
            peer = compared.show(work.title, "diffusers' bf16 less its f32", theirs, exact)
        if exact is not None:
            compared.show(work.title, "Braid's bf16 less diffusers' f32", ours, exact, peer)
    if theirs is not None:
        compared.show(work.title, "Braid less diffusers, both bf16", ours, theirs)


def in_layout(tensor, layout):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d} if layout == "channels last" else {}
    return tensor.contiguous(memory_format=formats.get(tensor.dim(), torch.contiguous_format))


def time_decodes(family, model, work, compiled, rounds):
    for layout in family.layouts:
        for parameter in model.parameters():
            parameter.data = in_layout(parameter.data, layout)
        z = in_layout(work.latents(), layout)
        title = f"decode {work.title}, {layout}, {'torch.compile' if compiled else 'eager'}"
        took = attempt(title, lambda: milliseconds(lambda: model.decode(z).sample, rounds)[0])
        if took:
            print(f"{title}: {took:.2f} ms", flush=True)
        torch.cuda.empty_cache()


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--size", action="append", required=True,
                        help="1024 or 1024x768, of videos 720x480:49")
    parser.add_argument("--pixels", help="prefix of what Braid wrote")
    parser.add_argument("--f32", action="store_true")
    parser.add_argument("--ways", default="eager", help="eager, compile, or both with a comma")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    config = {k: v for k, v in json.load(open(options.file))["vae"].items() if k[0] != "_"}
    if options.device == "cuda":
        print(f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
              f"{torch.cuda.get_device_name()}", flush=True)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    with torch.device("meta"):
        family = (Videos if ":" in options.size[0] else Pictures)(config)
    model = with_weights(family.model, 2, options.device)
    works = [Work(family, text, options.device) for text in options.size]
    compared = Comparison()
    for work in works if options.pixels else []:
        compare(model, work, options.pixels, options.f32, compared)
        if options.device == "cuda":
            torch.cuda.empty_cache()
    torch.backends.cudnn.benchmark = True
    for way in options.ways.split(",") if options.rounds else []:
        if way == "compile":
            model.decoder.compile(dynamic=False)
        for work in works:
            time_decodes(family, model, work, way == "compile", options.rounds)
    sys.exit(compared.beyond > 0)


if __name__ == "__main__":
    main()
