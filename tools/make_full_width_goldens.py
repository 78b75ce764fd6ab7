#!/usr/bin/env python3
"""Makes full_width.* in tests/golden/diffusion: what diffusers and transformers compute with components
of real width, few blocks and the weights of random_weights.py.

  tools/make_full_width_goldens.py            all components: a minute of 16 cores, 5 GB
  tools/make_full_width_goldens.py --only X   those whose name contains X; others stay as they are
  tools/make_full_width_goldens.py --gpu      errors on a GPU, beside results from a CPU

full_width.safetensors has results in f32 on the CPU, every k-th value of long ones; full_width.json has
k, the root mean square of results, and how far from them results in bf16 are, and a GPU's (gpu_f32,
gpu_bf16). Inputs are normal numbers of torch's generators 1 to 4, seeds of weights 1 to 4.
"""

import json
import os
import sys
import time
import types

sys.dont_write_bytecode = True

from make_diffusion_goldens import ROOT, begin, compact, relative_rms, save_file, torch
from diffusers import (AutoencoderKL, AutoencoderKLCogVideoX, CogVideoXPipeline,
                       CogVideoXTransformer3DModel, FluxTransformer2DModel)
from safetensors.torch import load_file
from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

from bench_image_torch import fill, normals, step_inputs
from bench_video_torch import latents_of
from make_video_goldens import tokens

CONFIGS = ROOT.parent.parent.parent / "configs"
MOST = 8192  # stored values of a result
TEXT = 226   # tokens


def config_of(file, part, **changes):
    return {**json.loads((CONFIGS / file).read_text())[part], **changes}


def flux():
    config = config_of("flux-1-dev.json", "transformer", num_layers=1, num_single_layers=1)

    def run(model, dtype):
        inputs = step_inputs(config, 112, model.device, dtype, TEXT)
        return model(**inputs)[0][0]
    return FluxTransformer2DModel, config, 1, run


def cogvideox(file):
    config = config_of(file, "transformer", num_layers=2)
    patch = config.get("patch_size_t") or 1
    grid = (3, 4, 5)

    def run(model, dtype):
        x = normals(3, grid[0] * grid[1] * grid[2], 4 * patch * config["in_channels"])
        rotary = None
        if config["use_rotary_positional_embeddings"]:
            pipe = types.SimpleNamespace(vae_scale_factor_spatial=8, transformer=model)
            rotary = CogVideoXPipeline._prepare_rotary_positional_embeddings(
                pipe, 16 * grid[1], 16 * grid[2], grid[0] * patch, model.device)
        to = {"device": model.device, "dtype": dtype}
        made = model(latents_of(x, grid, config).to(**to),
                     normals(1, 1, TEXT, config["text_embed_dim"]).to(**to),
                     torch.tensor([500], device=model.device), image_rotary_emb=rotary,
                     return_dict=False)[0]
        return tokens(made[0], patch)
    return CogVideoXTransformer3DModel, config, 1, run


def kl_decoder():
    config = config_of("flux-1-dev.json", "vae", down_block_types=4 * ("DownEncoderBlock2D",),
                       up_block_types=4 * ("UpDecoderBlock2D",))

    def run(model, dtype):
        z = normals(4, 7, 5, config["latent_channels"]).permute(2, 0, 1)[None]
        z = z / config["scaling_factor"] + config["shift_factor"]
        return model.decode(z.to(model.device, dtype)).sample[0].permute(1, 2, 0)
    return AutoencoderKL, config, 2, run


def video_decoder():
    config = config_of("cogvideox-5b.json", "vae")

    def run(model, dtype):
        z = normals(4, 5, 3, 2, config["latent_channels"]).permute(3, 0, 1, 2)[None]
        z = z / config["scaling_factor"]
        return model.decode(z.to(model.device, dtype)).sample[0].permute(1, 2, 3, 0)
    return AutoencoderKLCogVideoX, config, 2, run


def text_config(name, **changes):
    names = json.loads((ROOT / "component_names.json").read_text())
    return {**names[name]["config"], **changes}


def token_ids(count, vocab):
    return torch.arange(count)[None] * 7919 % vocab


def t5():
    def run(model, _):
        return model(input_ids=token_ids(TEXT, 32000).to(model.device)).last_hidden_state[0]
    return lambda **c: T5EncoderModel(T5Config(**c)), text_config("t5", num_layers=2), 3, run


def clip():
    def run(model, _):
        ids = token_ids(77, 49000)
        ids[0, 20:] = 49407  # the end of the text
        positions = torch.arange(77)[None].to(model.device)
        return model(input_ids=ids.to(model.device), position_ids=positions).pooler_output[0]
    return lambda **c: CLIPTextModel(CLIPTextConfig(**c)), text_config("clip"), 4, run


COMPONENTS = {
    "flux": flux,
    "cogvideox_2b": lambda: cogvideox("cogvideox-2b.json"),
    "cogvideox_5b": lambda: cogvideox("cogvideox-5b.json"),
    "cogvideox_1_5_5b": lambda: cogvideox("cogvideox-1.5-5b.json"),
    "flux_decoder": kl_decoder,
    "cogvideox_decoder": video_decoder,
    "t5": t5,
    "clip": clip,
}


def hashed(make, config, seed, device):
    with torch.device("meta"):
        model = make(**config)
    model = model.to_empty(device=device).eval()
    if isinstance(model, T5EncoderModel):
        model.encoder.embed_tokens.weight = model.shared.weight  # to_empty parts them
    for name, parameter in model.named_parameters():
        if isinstance(model, CLIPTextModel) and not name.startswith("text_model."):
            name = "text_model." + name  # as published files have it
        fill(seed, name, parameter.data)
    return model


@torch.inference_mode()
def main():
    options = begin(__doc__, lambda parser: parser.add_argument("--gpu", action="store_true"))
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    results, facts = {}, {}
    if options.gpu:
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.allow_tf32 = False
    if options.gpu or (options.only and (ROOT / "full_width.json").exists()):
        results = load_file(ROOT / "full_width.safetensors")
        facts = json.loads((ROOT / "full_width.json").read_text())
    for name, component in COMPONENTS.items():
        if options.only not in name or (options.gpu and name not in results):
            continue
        start = time.time()
        make, config, seed, run = component()
        model = hashed(make, config, seed, "cuda" if options.gpu else "cpu")
        exact = run(model, torch.float32).float().cpu().flatten()
        rounded = run(model.to(torch.bfloat16), torch.bfloat16).float().cpu().flatten()
        every = -(-len(exact) // MOST) | 1  # odd: of all columns
        exact, rounded = exact[::every].contiguous(), rounded[::every]
        if options.gpu:
            facts[name] |= {"gpu_f32": relative_rms(exact, results[name]),
                            "gpu_bf16": relative_rms(rounded, results[name])}
        else:
            results[name] = exact
            facts[name] = {"every": every, "rms": exact.square().mean().sqrt().item(),
                           "bf16": relative_rms(rounded, exact)}
        print(f"{name}: {facts[name]}, {time.time() - start:.0f} s", flush=True)
        del model
        save_file(results, ROOT / "full_width.safetensors")
        (ROOT / "full_width.json").write_text(compact(facts))


if __name__ == "__main__":
    main()
