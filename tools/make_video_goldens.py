#!/usr/bin/env python3
"""Makes the video files of tests/golden/diffusion: what diffusers computes with the CogVideoX
pipelines of make_tiny_pipeline.py.

  tools/make_video_goldens.py            all files
  tools/make_video_goldens.py --only X   those whose name contains X

Needs diffusers beside the packages of tools/requirements.txt. Everything runs in f32 on the CPU;
tests/golden/README.md says what each file holds.
"""

import copy
import itertools
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True

import make_tiny_pipeline
import tiny_cogvideox
from make_diffusion_goldens import ROOT, begin, compact, np, relative_rms, save_file, torch

try:
    from diffusers import (AutoencoderKLCogVideoX, CogVideoXDDIMScheduler, CogVideoXDPMScheduler,
                           CogVideoXPipeline, CogVideoXTransformer3DModel)
    from diffusers.models.embeddings import get_3d_rotary_pos_embed
except ImportError as error:
    sys.exit(f"make_video_goldens: needs diffusers ({error})")

# Sizes in pixels, 8 to a token along an axis. "video" is trained at 48 x 32.
CASES = [
    {"name": "video", "kind": "video", "prompt": "a red circle on the big sea", "negative": "",
     "width": 48, "height": 32, "frames": 9, "steps": 4, "guidance": 6.0, "dynamic": False,
     "seed": 7, "text": 16},
    {"name": "video_frame", "kind": "video", "prompt": "cat", "negative": "", "width": 16,
     "height": 8, "frames": 1, "steps": 2, "guidance": 1.0, "dynamic": False, "seed": 3, "text": 16},
    {"name": "video_long", "kind": "video", "prompt": "dog and box", "negative": "dark sea",
     "width": 16, "height": 24, "frames": 17, "steps": 7, "guidance": 4.5, "dynamic": True,
     "seed": 1 << 40, "text": 16},
    {"name": "video_rotary", "kind": "video_rotary", "prompt": "sun, hat", "negative": "a tree",
     "width": 24, "height": 40, "frames": 9, "steps": 5, "guidance": 3.5, "dynamic": False,
     "seed": 11, "text": 7},
    {"name": "video_rotary_wide", "kind": "video_rotary", "prompt": "", "negative": "", "width": 56,
     "height": 16, "frames": 9, "steps": 1, "guidance": 6.0, "dynamic": True, "seed": 2, "text": 1},
    {"name": "video_pairs", "kind": "video_pairs", "prompt": "small house in light",
     "negative": "", "width": 40, "height": 16, "frames": 17, "steps": 3, "guidance": 6.0,
     "dynamic": False, "seed": 5, "text": 33},
    {"name": "video_pairs_frame", "kind": "video_pairs", "prompt": "box", "negative": "blue",
     "width": 8, "height": 8, "frames": 1, "steps": 3, "guidance": 2.0, "dynamic": True, "seed": 9,
     "text": 4},
    # As many tokens of text as the models read: a text that is cut, and a text that is padded.
    {"name": "video_text_226", "kind": "video_rotary", "prompt": 90 * "a red dog, ", "negative": "sea",
     "width": 16, "height": 8, "frames": 9, "steps": 2, "guidance": 6.0, "dynamic": False, "seed": 4,
     "text": 226},
    {"name": "video_text_512", "kind": "video_pairs", "prompt": 60 * "big house, ", "negative": "",
     "width": 8, "height": 16, "frames": 17, "steps": 2, "guidance": 6.0, "dynamic": False, "seed": 6,
     "text": 512},
    # Several videos: each with a generator of its own, or one generator for all.
    {"name": "video_two", "kind": "video_rotary", "prompt": "a tree", "negative": "", "width": 16,
     "height": 8, "frames": 9, "steps": 3, "guidance": 4.0, "dynamic": False, "seed": 12, "text": 8,
     "videos": 2},
    {"name": "video_two_batch", "kind": "video_rotary", "prompt": "a tree", "negative": "",
     "width": 16, "height": 8, "frames": 9, "steps": 4, "guidance": 4.0, "dynamic": False, "seed": 12,
     "text": 8, "videos": 2, "batch": True},
    {"name": "video_three_batch", "kind": "video", "prompt": "light", "negative": "", "width": 8,
     "height": 8, "frames": 9, "steps": 2, "guidance": 1.0, "dynamic": False, "seed": 8, "text": 16,
     "videos": 3, "batch": True},
]


def tokens(latents, patch):
    """[F, C, h, w] as a transformer reads it, [F / patch * h / 2 * w / 2, C * patch * 4]."""
    F, C, h, w = latents.shape
    x = latents.reshape(F // patch, patch, C, h // 2, 2, w // 2, 2)
    return x.permute(0, 3, 5, 2, 1, 4, 6).reshape(F // patch * h // 2 * w // 2, -1)


def run_case(pipe, case):
    """Latents of each step and pictures, of all videos one after another."""
    patch = pipe.transformer.config.patch_size_t or 1
    videos, steps = case.get("videos", 1), []

    def keep(_pipe, _step, _timestep, kwargs):
        steps.append(torch.stack([tokens(one, patch) for one in kwargs["latents"]]))
        return kwargs

    generators = [torch.Generator().manual_seed(case["seed"] + k) for k in range(videos)]
    frames = pipe(videos * [case["prompt"]], videos * [case["negative"]], width=case["width"],
                  height=case["height"], num_frames=case["frames"],
                  num_inference_steps=case["steps"], guidance_scale=case["guidance"],
                  use_dynamic_cfg=case["dynamic"],
                  generator=generators[0] if case.get("batch") or videos == 1 else generators,
                  max_sequence_length=case["text"], output_type="np", callback_on_step_end=keep).frames
    return {"latents": torch.cat(list(torch.stack(steps, 1))),
            "pixels": torch.from_numpy((np.concatenate(frames) * 255).round().astype(np.int32))}


# Latents [frames, h, w] of videos larger than a tile, and a frame of training in pixels. With a frame
# whose quarter's sixth and fifth are no whole latents, diffusers makes frames of another size.
TILES = {"video_rotary": ((5, 7, 6), (48, 40)), "video": ((1, 21, 9), (96, 80)),
         "video_pairs": ((4, 3, 6), (48, 40))}


def run_tiles(root):
    out = {}
    for kind, (size, (height, width)) in TILES.items():
        folder = pathlib.Path(root) / f"tiles_{kind}"
        make_tiny_pipeline.make(folder, kind)
        vae = AutoencoderKLCogVideoX.from_pretrained(
            folder / "vae", torch_dtype=torch.float32, sample_height=height, sample_width=width)
        torch.manual_seed(7)
        z = torch.randn(1, vae.config.latent_channels, *size)
        vae.enable_tiling()
        with torch.no_grad():
            frames = vae.decode(z).sample
        out[f"{kind}.sample"] = torch.tensor([height, width], dtype=torch.int32)
        out[f"{kind}.latents"] = z[0].permute(1, 2, 3, 0)
        out[f"{kind}.frames"] = frames[0].permute(1, 2, 3, 0)
    return out


def run_sampler(config, steps):
    """Latents after each step from 16 ones, with predictions of a second generator."""
    made = {"CogVideoXDDIMScheduler": CogVideoXDDIMScheduler,
            "CogVideoXDPMScheduler": CogVideoXDPMScheduler}[config["_class_name"]]
    sampler = made(**{k: v for k, v in config.items() if k != "_class_name"})
    sampler.set_timesteps(steps)
    generator, model = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    x, old, before, out = torch.ones(16), None, None, []
    for t in sampler.timesteps:
        prediction = torch.randn(16, generator=model)
        if made is CogVideoXDPMScheduler:
            x, old = sampler.step(prediction, old, t, before, x, generator=generator)
            before = t
        else:
            x = sampler.step(prediction, t, x).prev_sample
        out += x.tolist()
    return {"config": config, "steps": steps, "timesteps": sampler.timesteps.tolist(),
            "latents": out}


def sampler_tables():
    out = []
    for name, shift in (("DDIM", 3.0), ("DPM", 1.0)):
        base = tiny_cogvideox.scheduler(name, shift)
        out += [run_sampler(base, steps) for steps in (1, 2, 3, 7, 50)]
        for prediction, spacing in itertools.product(("epsilon", "sample", "v_prediction"),
                                                     ("leading", "linspace")):
            out.append(run_sampler({**base, "prediction_type": prediction,
                                    "timestep_spacing": spacing, "rescale_betas_zero_snr": False,
                                    "steps_offset": 1, "set_alpha_to_one": False}, 5))
    return out


def full_size_names():
    """Names and shapes of the transformers of 2B, 5B and 1.5-5B; made without memory."""
    five = {"num_attention_heads": 48, "num_layers": 42, "use_rotary_positional_embeddings": True}
    pairs = {**five, "patch_size_t": 2, "sample_frames": 81, "sample_height": 96,
             "sample_width": 170, "patch_bias": False}
    out = {}
    for name, changes in (("2b", {}), ("5b", five), ("1.5", pairs)):
        with torch.device("meta"):
            model = CogVideoXTransformer3DModel(**changes)
        config = {k: v for k, v in model.config.items() if not k.startswith("_")}
        out[name] = {"config": {"_class_name": "CogVideoXTransformer3DModel", **config},
                     "tensors": {k: list(v.shape) for k, v in model.state_dict().items()}}
    return out


def rounding_errors(rounded_dtype):
    """How far diffusers in bf16 or f16 is from f32, for random inputs: relative errors of the
    transformers' predictions and of the decoders' pictures."""
    out = {}
    with tempfile.TemporaryDirectory() as root:
        for kind, spec in tiny_cogvideox.KINDS.items():
            folder = pathlib.Path(root) / kind
            make_tiny_pipeline.make(folder, kind)
            exact = CogVideoXTransformer3DModel.from_pretrained(folder / "transformer",
                                                                torch_dtype=torch.float32)
            rounded = copy.deepcopy(exact).to(rounded_dtype)
            torch.manual_seed(1)
            latents = torch.randn(1, 4, 4, 6, 8)
            text = torch.randn(1, 16, spec["t5"]["width"])
            rotary = None
            if spec["transformer"]["rotary"]:
                patch = spec["transformer"]["patch_frames"] or 1
                rotary = get_3d_rotary_pos_embed(spec["transformer"]["head_dim"],
                                                 ((0, 0), (3, 4)), (3, 4), 4 // patch)
            errors = []
            for t in (999, 500, 20):
                results = [model(latents.to(dtype), text.to(dtype), torch.tensor([t]),
                                 image_rotary_emb=rotary, return_dict=False)[0].detach()
                           for model, dtype in ((exact, torch.float32), (rounded, rounded_dtype))]
                errors.append(relative_rms(results[1], results[0]))
            exact = AutoencoderKLCogVideoX.from_pretrained(folder / "vae",
                                                           torch_dtype=torch.float32)
            rounded = copy.deepcopy(exact).to(rounded_dtype)
            latents = torch.randn(1, exact.config.latent_channels, 5, 6, 8)
            latents /= exact.config.scaling_factor
            pictures = [model.decode(latents.to(model.dtype)).sample.detach()
                        for model in (exact, rounded)]
            out[kind] = {"prediction": max(errors),
                         "picture": relative_rms(pictures[1], pictures[0])}
    return out


def main():
    options = begin(__doc__)
    tables = {"cogvideox_samplers.json": sampler_tables, "cogvideox_names.json": full_size_names,
              "video_bf16_errors.json": lambda: rounding_errors(torch.bfloat16),
              "video_f16_errors.json": lambda: rounding_errors(torch.float16)}
    for name, make in tables.items():
        if options.only in name:
            (ROOT / name).write_text(compact(make()))
    (ROOT / "video_cases.json").write_text(compact(CASES))
    with tempfile.TemporaryDirectory() as root:
        if options.only in "video_tiles.safetensors":
            save_file({k: v.contiguous() for k, v in run_tiles(root).items()},
                      ROOT / "video_tiles.safetensors")
        for kind in tiny_cogvideox.KINDS:
            folder = pathlib.Path(root) / kind
            make_tiny_pipeline.make(folder, kind)
            pipe = CogVideoXPipeline.from_pretrained(folder, torch_dtype=torch.float32)
            for case in CASES:
                if case["kind"] == kind and options.only in case["name"] + ".safetensors":
                    save_file({k: v.contiguous() for k, v in run_case(pipe, case).items()},
                              ROOT / f"{case['name']}.safetensors")


if __name__ == "__main__":
    main()
