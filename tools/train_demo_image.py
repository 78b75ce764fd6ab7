#!/usr/bin/env python3
"""Trains the demo model of `braid image`: a Flux-shaped pipeline that draws scenes of one shape.

  tools/train_demo_image.py FOLDER [--device cuda] [--vae-seconds 40] [--seconds 80]

A prompt is "a big red circle on the left in the gray background": two sizes, six colours, three
shapes, three places, three backgrounds. tools/make_tiny_pipeline.py --kind demo makes the folder's
shapes and tokenizers; the autoencoder learns drawn scenes, then transformer and both text encoders
learn the flow from noise to latents together. Prints how many drawn scenes show what their prompts
say. Needs torch, transformers and diffusers. FOLDER is a diffusers pipeline in f16, 4 MB in all.
"""

import argparse
import json
import math
import pathlib
import sys
import time

sys.dont_write_bytecode = True

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, FluxTransformer2DModel
from safetensors.torch import load_file, save_file
from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

import make_tiny_pipeline

SIDE, SCALE, TEXT, STEPS = 64, 4, 16, 20
SIZES = {"big": 15.0, "small": 9.0}
COLOURS = {"red": (220, 40, 40), "green": (40, 170, 60), "blue": (40, 80, 220),
           "yellow": (230, 210, 40), "purple": (150, 50, 180), "orange": (240, 140, 30)}
SHAPES = ["circle", "square", "triangle"]
PLACES = {"on the left": 16, "in the middle": 32, "on the right": 48}
BACKGROUNDS = {"gray": (128, 128, 128), "white": (245, 245, 245), "black": (15, 15, 15)}
CHOICES = [list(SIZES), list(COLOURS), SHAPES, list(PLACES), list(BACKGROUNDS)]
COUNTS = [len(c) for c in CHOICES]


def prompt_of(scene):
    size, colour, shape, place, ground = (c[i] for c, i in zip(CHOICES, scene))
    return f"a {size} {colour} {shape} {place} in the {ground} background"


def draw(scenes, generator):
    """Pictures [B, 3, SIDE, SIDE], -1 to 1, of scenes [B, 5]; places vary by two pixels."""
    device = scenes.device
    table = lambda values: torch.tensor(list(values), dtype=torch.float32, device=device)
    radius = table(SIZES.values())[scenes[:, 0], None, None]
    jitter = 4 * torch.rand(2, len(scenes), 1, 1, generator=generator, device=device) - 2
    x0 = table(PLACES.values())[scenes[:, 3], None, None] + jitter[0]
    y0 = SIDE / 2 + jitter[1]
    at = torch.arange(SIDE, device=device) + 0.5
    x, y = at[None, None, :] - x0, at[None, :, None] - y0
    circle = torch.sqrt(x * x + y * y) - radius
    square = torch.maximum(x.abs(), y.abs()) - 0.9 * radius
    slope = 2 / math.sqrt(5)  # of a triangle as high as wide, its top in the middle
    triangle = torch.maximum(slope * (x.abs() - (y + radius) / 2), y - radius)
    inside = torch.stack([circle, square, triangle], 1)
    inside = inside[torch.arange(len(scenes), device=device), scenes[:, 2]]
    cover = (0.5 - inside).clamp(0, 1)[:, None]
    colour = table(COLOURS.values())[scenes[:, 1], :, None, None]
    ground = table(BACKGROUNDS.values())[scenes[:, 4], :, None, None]
    return (cover * colour + (1 - cover) * ground) / 127.5 - 1


def read(pictures):
    """What pictures [B, 3, SIDE, SIDE] show, as scenes [B, 5]: what a test does with pixels."""
    rgb = (pictures.clamp(-1, 1) + 1) * 127.5
    nearest = lambda c, table: torch.cdist(
        c[:, None], torch.tensor(list(table.values()), device=c.device, dtype=c.dtype)[None])[:, 0].argmin(1)
    corners = torch.cat([rgb[:, :, :4, :].flatten(2), rgb[:, :, -4:, :].flatten(2)], 2).mean(2)
    mask = ((rgb - corners[:, :, None, None]).norm(dim=1) > 60).float()
    area = mask.sum((1, 2)).clamp(min=1)
    colour = (rgb * mask[:, None]).sum((2, 3)) / area[:, None]
    at = torch.arange(SIDE, device=rgb.device) + 0.5
    column = (mask.sum(1) * at).sum(1) / area
    width, height = mask.amax(1).sum(1), mask.amax(2).sum(1)
    fill = area / (width * height).clamp(min=1)
    shape = torch.where(fill > 0.9, 1, torch.where(fill > 0.65, 0, 2))
    place = torch.where(column < 24, 0, torch.where(column > 40, 2, 1))
    return torch.stack([(width < 24).long(), nearest(colour, COLOURS), shape, place,
                        nearest(corners, BACKGROUNDS)], 1)


def tokens_of(latents):  # as FluxPipeline packs latents: [B, C, H, W] to [B, H W / 4, 4 C]
    return F.pixel_unshuffle(latents, 2).flatten(2).transpose(1, 2)


def latents_of(tokens):
    side = SIDE // SCALE // 2
    return F.pixel_shuffle(tokens.transpose(1, 2).unflatten(2, (side, side)), 2)


class Text:
    """Token ids of all words, by the folder's tokenizers; a prompt is made of whole words."""

    def __init__(self, folder, device):
        vocabulary = json.loads((folder / "tokenizer/vocab.json").read_text())
        pieces = json.loads((folder / "tokenizer_2/tokenizer.json").read_text())["model"]["vocab"]
        t5 = {piece: i for i, (piece, _) in enumerate(pieces)}
        begin, end = vocabulary["<|startoftext|>"], vocabulary["<|endoftext|>"]
        self.clip, self.t5 = {}, {}
        scenes = torch.cartesian_prod(*(torch.arange(n) for n in COUNTS)).tolist()
        clip_ids, t5_ids = [], []
        for scene in scenes:
            words = prompt_of(scene).split()
            ids = [begin, *(vocabulary[w + "</w>"] for w in words), end]
            clip_ids.append(ids + (77 - len(ids)) * [end])
            ids = [*(t5["\u2581" + w] for w in words), 1]
            t5_ids.append(ids + (TEXT - len(ids)) * [0])
        # Behind the first end token CLIP's causal attention sees nothing that counts.
        self.clip_ids = torch.tensor(clip_ids, device=device)[:, :16]
        self.t5_ids = torch.tensor(t5_ids, device=device)

    def index(self, scenes):
        index = torch.zeros_like(scenes[:, 0])
        for i, n in enumerate(COUNTS):
            index = index * n + scenes[:, i]
        return index


def random_scenes(n, generator, device):
    return torch.stack([torch.randint(c, (n,), generator=generator, device=device)
                        for c in COUNTS], 1)


def training(parameters, seconds, rate, loss_of):
    """Steps for `seconds` under a rate that rises and falls."""
    optimizer = torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    begin, step, shown = time.time(), 0, 0
    while (part := (time.time() - begin) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 100) * (0.5 + 0.5 * math.cos(math.pi * part))
        loss = loss_of()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        step += 1
        if part >= shown / 5:
            shown += 1
            print(f"  {time.time() - begin:.0f} s, step {step}: {loss.item():.5f}", flush=True)
    print(f"  {step} steps", flush=True)


def train_vae(vae, options, generator):
    def loss_of():
        scenes = random_scenes(options.batch, generator, options.device)
        pictures = draw(scenes, generator)
        posterior = vae.encode(pictures).latent_dist
        noise = torch.randn(posterior.mean.shape, generator=generator, device=options.device)
        made = vae.decode(posterior.mean + posterior.std * noise).sample
        return F.mse_loss(made, pictures) + 0.1 * (made - pictures).abs().mean() + \
            1e-5 * posterior.kl().mean()
    training(list(vae.parameters()), options.vae_seconds, 2e-3, loss_of)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--vae-seconds", type=float, default=40)
    parser.add_argument("--seconds", type=float, default=80)
    options = parser.parse_args()
    folder, device = options.folder, options.device
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    generator = torch.Generator(device).manual_seed(1)

    make_tiny_pipeline.make(folder, "demo")
    config = lambda part: json.loads((folder / part / "config.json").read_text())
    vae = AutoencoderKL.from_config(config("vae")).to(device)
    train_vae(vae, options, generator)
    with torch.no_grad():
        pictures = draw(random_scenes(512, generator, device), generator)
        z = vae.encode(pictures).latent_dist.mean
        shift, scale = z.mean().item(), 1 / z.std().item()
        print(f"autoencoder: mean square {F.mse_loss(vae.decode(z).sample, pictures).item():.6f}")

    transformer = FluxTransformer2DModel.from_config(config("transformer")).to(device)
    clip = CLIPTextModel(CLIPTextConfig(**config("text_encoder"))).to(device)
    t5 = T5EncoderModel(T5Config(**config("text_encoder_2"))).to(device).train()
    text = Text(folder, device)
    rows = SIDE // SCALE // 2
    places = torch.cartesian_prod(torch.arange(rows), torch.arange(rows)).to(device)
    image_ids = torch.cat([torch.zeros_like(places[:, :1]), places], 1).float()
    text_ids = torch.zeros(TEXT, 3, device=device)

    def encode(index):
        return (t5(input_ids=text.t5_ids[index])[0],
                clip(input_ids=text.clip_ids[index]).pooler_output)

    def velocity(x, sigma, states, pooled):
        return transformer(hidden_states=x, encoder_hidden_states=states,
                           pooled_projections=pooled, timestep=sigma, img_ids=image_ids,
                           txt_ids=text_ids, return_dict=False)[0]

    def loss_of():
        scenes = random_scenes(options.batch, generator, device)
        with torch.no_grad():
            z = vae.encode(draw(scenes, generator)).latent_dist.mean
            x = tokens_of((z - shift) * scale)
        noise = torch.randn(x.shape, generator=generator, device=device)
        sigma = torch.sigmoid(1.2 * torch.randn(len(x), generator=generator, device=device))
        s = sigma[:, None, None]
        made = velocity((1 - s) * x + s * noise, sigma, *encode(text.index(scenes)))
        return F.mse_loss(made, noise - x)

    models = [transformer, clip, t5]
    training([p for m in models for p in m.parameters()], options.seconds, 1.5e-3, loss_of)

    # Weights as they are written, read back and used.
    names = {"vae": (vae, "diffusion_pytorch_model"), "transformer": (transformer, "diffusion_pytorch_model"),
             "text_encoder": (clip, "model"), "text_encoder_2": (t5, "model")}
    for part, (model, name) in names.items():
        path = folder / part / f"{name}.safetensors"
        state = model.state_dict()
        # Versions of transformers differ in the prefix of a text encoder's names.
        as_written = {k: state.get(k, state.get(k.removeprefix("text_model."))) for k in load_file(path)}
        save_file({k: v.detach().half().cpu().contiguous() for k, v in as_written.items()}, path,
                  metadata={"format": "pt"})
        model.load_state_dict({k: v.half().float() for k, v in state.items()})
        model.eval()
    described = config("vae") | {"scaling_factor": scale, "shift_factor": shift}
    (folder / "vae/config.json").write_text(json.dumps(described, indent=2) + "\n")

    with torch.no_grad():
        scenes = random_scenes(256, generator, device)
        x = torch.randn(len(scenes), rows * rows, 16, generator=generator, device=device)
        states, pooled = encode(text.index(scenes))
        sigmas = torch.cat([torch.linspace(1, 1 / STEPS, STEPS), torch.zeros(1)]).to(device)
        for now, after in zip(sigmas, sigmas[1:]):
            x = x + (after - now) * velocity(x, now.expand(len(x)), states, pooled)
        pictures = vae.decode(latents_of(x) / scale + shift).sample
        right = (read(pictures) == scenes).float()
        drawn = (read(draw(scenes, generator)) == scenes).float()
        labels = "size colour shape place background".split()
        print("of 256 scenes: " + ", ".join(f"{n} {100 * r:.1f}%" for n, r in zip(labels, right.mean(0)))
              + f"; all {100 * right.amin(1).mean():.1f}% (drawn ones read {100 * drawn.amin(1).mean():.1f}%)")
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    print(f"{folder}: {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
