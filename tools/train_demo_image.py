#!/usr/bin/env python3
"""Trains the demo model of `braid image`: a Flux-shaped pipeline that draws scenes of one shape.

  tools/train_demo_image.py FOLDER [--device cuda] [--vae-seconds 90] [--seconds 120]

A prompt is "a big red circle on the left in the gray background": two sizes, six colours, three
shapes, three places, three backgrounds. tools/make_tiny_pipeline.py --kind demo makes the folder's
shapes and tokenizers; the autoencoder learns drawn scenes, then transformer and both text encoders
learn the flow from noise to latents together. On a GPU a training step is a CUDA graph. Prints how
many scenes show what their prompts say: drawn, through the autoencoder, and made from noise. Needs
torch, transformers and diffusers. FOLDER is a diffusers pipeline in f16, 4 MB in all.
"""

import argparse
import functools
import json
import math
import pathlib
import sys
import time

sys.dont_write_bytecode = True
BEGIN = time.time()

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, FluxTransformer2DModel
from safetensors.torch import load_file, save_file
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer, T5Config, T5EncoderModel

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


@functools.cache
def table(values, device):
    return torch.tensor(values, dtype=torch.float32, device=device)


def draw(scenes):
    """Pictures [B, 3, SIDE, SIDE], -1 to 1, of scenes [B, 5]; places vary by two pixels."""
    device = scenes.device
    of = lambda words, column: table(tuple(words.values()), device)[scenes[:, column]]
    radius = of(SIZES, 0)[:, None, None]
    jitter = 4 * torch.rand(2, len(scenes), 1, 1, device=device) - 2
    x0 = of(PLACES, 3)[:, None, None] + jitter[0]
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
    colour, ground = of(COLOURS, 1)[:, :, None, None], of(BACKGROUNDS, 4)[:, :, None, None]
    return (cover * colour + (1 - cover) * ground) / 127.5 - 1


def read(pictures):
    """What pictures [B, 3, SIDE, SIDE] show, as scenes [B, 5]: what a test does with pixels."""
    rgb = (pictures.clamp(-1, 1) + 1) * 127.5
    nearest = lambda c, words: torch.cdist(
        c[:, None], table(tuple(words.values()), c.device)[None])[:, 0].argmin(1)
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
        tokenizer = CLIPTokenizer.from_pretrained(folder / "tokenizer")
        for scene in scenes:
            words = prompt_of(scene).split()
            ids = [begin, *(vocabulary[w + "</w>"] for w in words), end]
            if tokenizer(prompt_of(scene))["input_ids"] != ids:
                sys.exit(f"{folder}/tokenizer cuts words of: {prompt_of(scene)}")
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


def random_scenes(n, device):
    return torch.stack([torch.randint(c, (n,), device=device) for c in COUNTS], 1)


def training(parameters, seconds, rate, loss_of):
    """Steps for `seconds` under a rate that rises and falls; on a GPU replays of a CUDA graph."""
    cuda = parameters[0].is_cuda
    now = torch.tensor(0.0, device=parameters[0].device)
    optimizer = torch.optim.AdamW(parameters, lr=now, betas=(0.9, 0.98), weight_decay=0.01,
                                  capturable=cuda, fused=cuda)

    def step():
        loss = loss_of()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss

    def eager():
        optimizer.zero_grad(set_to_none=True)
        return step()

    begin, run = time.time(), eager
    if cuda:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                eager()
        torch.cuda.current_stream().wait_stream(side)
        try:
            graph = torch.cuda.CUDAGraph()
            optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(graph):
                made = step().detach()
            run = lambda: (graph.replay(), made)[1]
        except RuntimeError as error:  # a version of a library that waits for the device
            print(f"  no graph: {error}", flush=True)
    steps, shown = 0, 0
    while (part := (time.time() - begin) / seconds) < 1:
        now.fill_(rate * min(1, (steps + 1) / 200) * (0.5 + 0.5 * math.cos(math.pi * part)))
        loss = run()
        steps += 1
        if part >= shown / 5:
            shown += 1
            print(f"  {time.time() - begin:.0f} s, step {steps}: {loss.item():.5f}", flush=True)
        if cuda and steps % 20 == 0:
            torch.cuda.synchronize()  # the clock counts steps that are done
    print(f"  {steps} steps", flush=True)


def train_vae(vae, options):
    def loss_of():
        pictures = draw(random_scenes(options.vae_batch, options.device))
        posterior = vae.encode(pictures.to(memory_format=torch.channels_last)).latent_dist
        made = vae.decode(posterior.mean + posterior.std * torch.randn_like(posterior.mean)).sample
        return F.mse_loss(made, pictures) + 0.3 * (made - pictures).abs().mean() + \
            1e-6 * posterior.kl().mean()
    training(list(vae.parameters()), options.vae_seconds, 2e-3, loss_of)


def share_read(name, pictures, scenes):
    right = (read(pictures) == scenes).float()
    labels = "size colour shape place background".split()
    print(f"{name} {len(scenes)} scenes: "
          + ", ".join(f"{n} {100 * r:.1f}%" for n, r in zip(labels, right.mean(0)))
          + f"; all {100 * right.amin(1).mean():.1f}%", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--vae-batch", type=int, default=64)
    parser.add_argument("--latents", type=int, default=65536, help="drawn scenes to learn the flow from")
    parser.add_argument("--vae-seconds", type=float, default=90)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--until", type=float, help="in place of --seconds: of the whole run")
    options = parser.parse_args()
    folder, device = options.folder, options.device
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True

    make_tiny_pipeline.make(folder, "demo")
    config = lambda part: json.loads((folder / part / "config.json").read_text())
    vae = AutoencoderKL.from_config(config("vae")).to(device, memory_format=torch.channels_last)
    train_vae(vae, options)
    scenes = random_scenes(options.latents, device)
    with torch.no_grad():
        z = torch.cat([vae.encode(draw(part)).latent_dist.mean for part in scenes.split(512)])
        shift, scale = z.mean().item(), 1 / z.std().item()
        latents = tokens_of((z - shift) * scale)
        pictures, some = draw(scenes[:512]), scenes[:512]
        again = vae(pictures).sample
        print(f"autoencoder: mean square {F.mse_loss(again, pictures).item():.6f}")
        share_read("drawn", pictures, some)
        share_read("autoencoder's", again, some)

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

    prompts = text.index(scenes)

    def loss_of():
        some = torch.randint(len(scenes), (options.batch,), device=device)
        x = latents[some]
        noise = torch.randn_like(x)
        sigma = torch.sigmoid(1.2 * torch.randn(len(x), device=device))
        s = sigma[:, None, None]
        made = velocity((1 - s) * x + s * noise, sigma, *encode(prompts[some]))
        return F.mse_loss(made, noise - x)

    models = [transformer, clip, t5]
    seconds = options.until - (time.time() - BEGIN) if options.until else options.seconds
    print(f"{time.time() - BEGIN:.0f} s: {seconds:.0f} s for the transformer", flush=True)
    training([p for m in models for p in m.parameters()], seconds, 1.5e-3, loss_of)

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
        scenes = random_scenes(512, device)
        x = torch.randn(len(scenes), rows * rows, 16, device=device)
        states, pooled = encode(text.index(scenes))
        sigmas = torch.cat([torch.linspace(1, 1 / STEPS, STEPS), torch.zeros(1)]).to(device)
        for now, after in zip(sigmas, sigmas[1:]):
            x = x + (after - now) * velocity(x, now.expand(len(x)), states, pooled)
        share_read("made", vae.decode(latents_of(x) / scale + shift).sample, scenes)
    size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    print(f"{folder}: {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
