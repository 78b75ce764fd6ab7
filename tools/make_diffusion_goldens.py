#!/usr/bin/env python3
"""Makes tests/golden/diffusion: what diffusers computes with the pipelines of make_tiny_pipeline.py.

  tools/make_diffusion_goldens.py            all files
  tools/make_diffusion_goldens.py --only X   those whose name contains X

Needs diffusers beside the packages of tools/requirements.txt. Everything runs in f32 on the CPU but
for bf16_errors.json and f16_errors.json;
tests/golden/README.md says what each file holds.
"""

import argparse
import contextlib
import copy
import json
import logging
import os
import pathlib
import sys
import tempfile
import warnings

sys.dont_write_bytecode = True
os.environ["TQDM_DISABLE"] = "1"
warnings.filterwarnings("ignore")

try:
    import numpy as np
    import torch
    from diffusers import (AutoencoderKL, AutoencoderKLCogVideoX, FlowMatchEulerDiscreteScheduler, FluxPipeline,
                           FluxTransformer2DModel)
    from diffusers.pipelines.flux.pipeline_flux import calculate_shift
    from safetensors.torch import save_file
    from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel
    from transformers.models.t5.modeling_t5 import T5Attention

    import make_tiny_pipeline
except ImportError as error:
    sys.exit(f"make_diffusion_goldens: needs diffusers and tools/requirements.txt ({error})")

ROOT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "diffusion"

# Sizes in pixels; a token is 8 x 8 of them in the guided pipeline, 4 x 4 in the fast one.
CASES = [
    {"name": "guided", "kind": "guided", "prompts": ["a red circle On the big sea"], "width": 64,
     "height": 48, "steps": 4, "guidance": 3.5, "seeds": [7], "text": 16},
    {"name": "guided_odd", "kind": "guided", "prompts": ["small cat"], "width": 24, "height": 40,
     "steps": 2, "guidance": 1.25, "seeds": [123456789012], "text": 1},
    {"name": "guided_two", "kind": "guided",
     "prompts": ["a dog in a box, with a hat!", "light"], "width": 40, "height": 24, "steps": 3,
     "guidance": 3.5, "seeds": [3, 4], "text": 77},
    {"name": "guided_long", "kind": "guided", "prompts": ["tree house on the dark round sea"],
     "width": 16, "height": 16, "steps": 1, "guidance": 7.0, "seeds": [0], "text": 512},
    {"name": "fast", "kind": "fast", "prompts": ["blue sun and green tree"], "width": 52,
     "height": 36, "steps": 4, "guidance": 0.0, "seeds": [42], "text": 11},
    {"name": "fast_two", "kind": "fast", "prompts": ["", "a square house with light"],
     "width": 20, "height": 12, "steps": 2, "guidance": 0.0, "seeds": [1, 2], "text": 256},
]

# Pictures of the committed demo model.
DEMO_CASES = [
    {"prompts": ["a big red circle on the left in the gray background"], "width": 64, "height": 64,
     "steps": 20, "guidance": 0.0, "seeds": [0], "text": 16},
    {"prompts": ["a small yellow triangle on the right in the black background",
                 "a big blue square in the middle in the white background"], "width": 48,
     "height": 32, "steps": 8, "guidance": 0.0, "seeds": [5, 6], "text": 256},
]


@contextlib.contextmanager
def pipelines():
    with tempfile.TemporaryDirectory() as root:
        loaded = {}
        for kind, spec in make_tiny_pipeline.KINDS.items():
            folder = pathlib.Path(root) / kind
            make_tiny_pipeline.make(folder, kind)
            loaded[kind] = FluxPipeline.from_pretrained(
                folder, torch_dtype=torch.float32, variant=spec["transformer"]["variant"] or None)
        yield loaded


def run_case(pipe, case):
    generators = [torch.Generator().manual_seed(seed) for seed in case["seeds"]]
    text, pooled, _ = pipe.encode_prompt(case["prompts"], case["prompts"],
                                         max_sequence_length=case["text"])
    n = len(case["prompts"])
    channels = pipe.transformer.config.in_channels // 4
    noise, _ = pipe.prepare_latents(n, channels, case["height"], case["width"], torch.float32,
                                    torch.device("cpu"),
                                    [torch.Generator().manual_seed(seed) for seed in case["seeds"]])
    steps = []

    def keep(_pipe, _step, _timestep, kwargs):
        steps.append(kwargs["latents"].clone())
        return kwargs

    image = pipe(case["prompts"], width=case["width"], height=case["height"],
                 num_inference_steps=case["steps"], guidance_scale=case["guidance"],
                 generator=generators, max_sequence_length=case["text"], output_type="np",
                 callback_on_step_end=keep, callback_on_step_end_tensor_inputs=["latents"]).images
    clip_ids = pipe.tokenizer(case["prompts"], padding="max_length", max_length=77,
                              truncation=True, return_tensors="pt").input_ids
    t5_ids = pipe.tokenizer_2(case["prompts"], padding="max_length", max_length=case["text"],
                              truncation=True, return_tensors="pt").input_ids
    return {"text": text, "pooled": pooled, "noise": noise, "latents": torch.stack(steps),
            "clip_ids": clip_ids.to(torch.int32), "t5_ids": t5_ids.to(torch.int32),
            "sigmas": pipe.scheduler.sigmas.clone(),
            "pixels": torch.from_numpy((image * 255).round().astype(np.int32))}


def demo_pictures():
    """The demo model in diffusers' own pipeline, opened from its folder as it is committed."""
    pipe = FluxPipeline.from_pretrained(ROOT.parents[2] / "models" / "demo-image",
                                        torch_dtype=torch.float32)
    out = {}
    for i, case in enumerate(DEMO_CASES):
        made = run_case(pipe, case)
        out[f"latents.{i}"] = made["latents"][-1]  # the last step's
        out[f"pixels.{i}"] = made["pixels"]
    return out


def relative_rms(got, want):
    got, want = got.double(), want.double()
    return ((got - want).square().mean() / want.square().mean()).sqrt().item()


def rounding_errors(dtype):
    """How far diffusers' transformer and decoder in bf16 or f16 are from f32, of the same f32 inputs:
    what rounding weights and activations does. The embedding of the timestep is that of f32:
    diffusers rounds the timestep itself, which moves it by up to 2 of 1000."""
    out = {}
    with pipelines() as loaded:
        for case in CASES:
            pipe = loaded[case["kind"]]
            exact, rounded = pipe.transformer, copy.deepcopy(pipe.transformer).to(dtype)
            vae = copy.deepcopy(pipe.vae).to(dtype)
            temb, errors = [], []
            keep = exact.time_text_embed.register_forward_hook(lambda *args: temb.append(args[2]))
            rounded.time_text_embed.forward = lambda *_: temb[-1].to(dtype)

            def compare(_module, args, kwargs, result):
                inputs = {k: v.to(dtype) if k.endswith(("states", "projections")) else v
                          for k, v in kwargs.items()}
                errors.append(relative_rms(rounded(*args, **inputs)[0], result[0]))
            hook = exact.register_forward_hook(compare, with_kwargs=True)
            run_case(pipe, case)
            hook.remove(), keep.remove()
            torch.manual_seed(1)
            z = torch.randn(1, vae.config.latent_channels, 16, 12)
            with torch.no_grad():
                picture = relative_rms(vae.decode(z.to(dtype)).sample,
                                       pipe.vae.decode(z).sample)
            out[case["name"]] = {"velocity": max(errors), "picture": picture}
    return out


def sampler_tables():
    """Noise levels of many configurations."""
    configs = [
        {"shift": 1.0}, {"shift": 3.0},
        {"shift": 3.0, "use_dynamic_shifting": True, "base_shift": 0.5, "max_shift": 1.15,
         "base_image_seq_len": 256, "max_image_seq_len": 4096},
        {"use_dynamic_shifting": True, "base_shift": 0.5, "max_shift": 0.9,
         "base_image_seq_len": 256, "max_image_seq_len": 8192, "shift_terminal": 0.02},
        {"use_dynamic_shifting": True, "time_shift_type": "linear"},
    ]
    tables = []
    for config in configs:
        for steps in (1, 2, 4, 28, 50):
            for tokens in (16, 256, 1024, 4096, 65536):
                if steps == 1 and config.get("shift_terminal"):
                    continue  # 0 / 0 in the reference
                scheduler = FlowMatchEulerDiscreteScheduler(**config)
                mu = calculate_shift(tokens, scheduler.config.base_image_seq_len,
                                     scheduler.config.max_image_seq_len,
                                     scheduler.config.base_shift, scheduler.config.max_shift)
                scheduler.set_timesteps(sigmas=np.linspace(1.0, 1 / steps, steps), mu=mu)
                tables.append({"config": {"_class_name": "FlowMatchEulerDiscreteScheduler",
                                          **config},
                               "steps": steps, "tokens": tokens,
                               "sigmas": [float(s) for s in scheduler.sigmas]})
    return tables


def random_numbers():
    """Draws of one generator after another; floats as they are in f32."""
    draws = []
    for seed in (0, 42, 1234567890, (1 << 32) + 5, (1 << 63) - 1):
        generator = torch.Generator().manual_seed(seed)
        calls = []
        for count in (16, 1, 2, 5, 15, 17, 31, 64, 1000):
            x = torch.randn(count, generator=generator)
            calls.append({"count": count, "first": x[:16].tolist(), "last": x[-16:].tolist()})
        halves = {name: torch.randn(48, generator=torch.Generator().manual_seed(seed),
                                    dtype=dtype).tolist()
                  for name, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16))}
        uniform = torch.rand(8, generator=torch.Generator().manual_seed(seed))
        draws.append({"seed": str(seed), "low_24_bits": [int(u * (1 << 24)) for u in uniform],
                      "normals": calls, **halves})
    return draws


def full_size_names():
    """Names and shapes of Flux.1 dev's and schnell's transformers; made without memory."""
    out = {}
    for name, guidance in (("dev", True), ("schnell", False)):
        with torch.device("meta"):
            model = FluxTransformer2DModel(guidance_embeds=guidance)
        config = {k: v for k, v in model.config.items() if not k.startswith("_")}
        out[name] = {"config": {"_class_name": "FluxTransformer2DModel", **config},
                     "tensors": {k: list(v.shape) for k, v in model.state_dict().items()}}
    return out


def component_names():
    """Configurations, names and shapes of Flux.1's encoders and autoencoder at full size."""
    clip = CLIPTextConfig(hidden_size=768, intermediate_size=3072, num_attention_heads=12)
    t5 = T5Config(d_model=4096, d_ff=10240, num_layers=24, num_heads=64,
                  feed_forward_proj="gated-gelu")
    vae = dict(block_out_channels=(128, 256, 512, 512), latent_channels=16, layers_per_block=2,
               down_block_types=4 * ("DownEncoderBlock2D",), up_block_types=4 * ("UpDecoderBlock2D",),
               use_quant_conv=False, use_post_quant_conv=False, scaling_factor=0.3611,
               shift_factor=0.1159)
    video = dict(block_out_channels=(128, 256, 256, 512), down_block_types=4 * ("CogVideoXDownBlock3D",),
                 up_block_types=4 * ("CogVideoXUpBlock3D",))
    with torch.device("meta"):
        models = {"clip": (clip.to_dict(), CLIPTextModel(clip)),
                  "t5": (t5.to_dict(), T5EncoderModel(t5)),
                  "vae": (vae, AutoencoderKL(**vae)),
                  "cogvideox_vae": (video, AutoencoderKLCogVideoX(**video))}
    out = {}
    for name, (config, model) in models.items():
        tensors = {k: list(v.shape) for k, v in model.state_dict().items()}
        tensors.pop("encoder.embed_tokens.weight", None)  # tied: not in files
        if name == "clip":  # as published files have it; transformers 5 has no prefix
            tensors = {"text_model." + k: v for k, v in tensors.items()}
        out[name] = {"config": config, "tensors": tensors}
    return out


def t5_buckets():
    """The bucket of each distance from -999 to 999."""
    distances = torch.arange(-999, 1000)
    return [T5Attention._relative_position_bucket(distances).tolist()]


def run_autoencoder(loaded):
    """Pictures of latents [B, h, w, C], as the decoder gets them."""
    out = {}
    for kind, sizes in {"guided": [(2, 7, 5), (1, 1, 1)], "fast": [(1, 3, 9), (1, 16, 16)]}.items():
        vae = loaded[kind].vae
        for i, (batch, height, width) in enumerate(sizes):
            torch.manual_seed(i)
            z = torch.randn(batch, vae.config.latent_channels, height, width)
            with torch.no_grad():
                image = vae.decode(z).sample
            out[f"{kind}.{i}.latents"] = z.permute(0, 2, 3, 1)
            out[f"{kind}.{i}.image"] = image.permute(0, 2, 3, 1)
    return out


def run_tiles(loaded):
    """Pictures of latents [h, w, C] that are larger than a tile."""
    out = {}
    for kind, (height, width) in {"guided": (15, 9), "fast": (7, 37)}.items():
        vae = loaded[kind].vae
        torch.manual_seed(7)
        z = torch.randn(1, vae.config.latent_channels, height, width)
        vae.enable_tiling()
        with torch.no_grad():
            image = vae.decode(z).sample
        vae.disable_tiling()
        out[f"{kind}.latents"] = z[0].permute(1, 2, 0)
        out[f"{kind}.image"] = image[0].permute(1, 2, 0)
    return out


def run_video_autoencoder():
    """A small CogVideoX decoder with its weights, and pictures of latents [frames, h, w, C]."""
    torch.manual_seed(5)
    vae = AutoencoderKLCogVideoX(
        block_out_channels=(4, 4, 8, 8), layers_per_block=1, norm_num_groups=2, latent_channels=4,
        down_block_types=4 * ("CogVideoXDownBlock3D",), up_block_types=4 * ("CogVideoXUpBlock3D",))
    weights = {k: v for k, v in vae.state_dict().items() if k.startswith("decoder.")}
    for name, w in weights.items():  # away from ones and zeros
        if w.dim() == 1:
            w += 0.2 * torch.randn_like(w)
    out = dict(weights)
    for frames in (1, 2, 5, 6):
        z = torch.randn(1, 4, frames, 3, 2)
        with torch.no_grad():
            pixels = vae.decode(z).sample
        out[f"latents.{frames}"] = z[0].permute(1, 2, 3, 0)
        out[f"pixels.{frames}"] = pixels[0].permute(1, 2, 3, 0)
    return out


def compact(value):
    """One line per entry of the outer list or object."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    lines = [(f"{json.dumps(k)}: " if isinstance(value, dict) else "") + json.dumps(v)
             for k, v in pairs]
    ends = "{}" if isinstance(value, dict) else "[]"
    return ends[0] + "\n" + ",\n".join(lines) + "\n" + ends[1] + "\n"


def begin(doc, add_options=lambda parser: None):
    """Options, and torch in a state in which results repeat."""
    parser = argparse.ArgumentParser(description=doc,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    add_options(parser)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    ROOT.mkdir(parents=True, exist_ok=True)
    return options


def main():
    options = begin(__doc__)
    tables = {"flow_match.json": sampler_tables, "torch_random.json": random_numbers,
              "flux_names.json": full_size_names, "component_names.json": component_names,
              "t5_buckets.json": t5_buckets, "bf16_errors.json": lambda: rounding_errors(torch.bfloat16),
              "f16_errors.json": lambda: rounding_errors(torch.float16)}
    for name, make in tables.items():
        if options.only in name:
            (ROOT / name).write_text(compact(make()))
    (ROOT / "cases.json").write_text(compact(CASES))
    (ROOT / "demo_cases.json").write_text(compact(DEMO_CASES))
    if options.only in "demo.safetensors":
        save_file({k: v.contiguous() for k, v in demo_pictures().items()}, ROOT / "demo.safetensors")
    if options.only in "video_autoencoder.safetensors":
        save_file({k: v.contiguous() for k, v in run_video_autoencoder().items()},
                  ROOT / "video_autoencoder.safetensors")
    with pipelines() as loaded:
        if options.only in "autoencoder.safetensors":
            save_file({k: v.contiguous() for k, v in run_autoencoder(loaded).items()},
                      ROOT / "autoencoder.safetensors")
        if options.only in "tiles.safetensors":
            save_file({k: v.contiguous() for k, v in run_tiles(loaded).items()},
                      ROOT / "tiles.safetensors")
        for case in CASES:
            if options.only in case["name"] + ".safetensors":
                tensors = run_case(loaded[case["kind"]], case)
                save_file({k: v.contiguous() for k, v in tensors.items()},
                          ROOT / f"{case['name']}.safetensors")


if __name__ == "__main__":
    main()
