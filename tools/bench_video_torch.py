#!/usr/bin/env python3
"""diffusers on a GPU beside bench_cuda_cogvideox: a pass of CogVideoX with equal weights.

  tools/bench_video_torch.py configs/cogvideox-2b.json --frames 49 --compile --prediction FILE

Weights are those of tools/random_weights.py, in bf16; inputs those of bench_cuda_cogvideox. FILE is
what bench_cuda_cogvideox --prediction wrote for the first --frames. Decoders:
tools/bench_decoder_torch.py.
"""

import argparse
import array
import json
import sys

sys.dont_write_bytecode = True

import torch
from diffusers import CogVideoXTransformer3DModel
from diffusers.models.embeddings import get_3d_rotary_pos_embed

from bench_image_torch import milliseconds, normals, with_weights


def latents_of(tokens, grid, config):
    """Tokens of one latent frame each, of a pair in version 1.5, as [1, F, C, h, w]."""
    (F, h, w), C, patch = grid, config["in_channels"], config.get("patch_size_t") or 1
    x = tokens.view(F, h, w, C, patch, 2, 2).permute(0, 4, 3, 1, 5, 2, 6)
    return x.reshape(1, F * patch, C, 2 * h, 2 * w)


def tokens_of(latents):
    _, F, C, h, w = latents.shape
    return latents.view(F, C, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(-1, 4 * C)


def pass_inputs(config, frames, size, device, model=None):
    """Arguments of a pass of one text; a model without rotation gets its table of this size."""
    grid = ((frames - 1) // 4 + 1, size[1] // 16, size[0] // 16)
    bf16 = {"device": device, "dtype": torch.bfloat16}
    patches = normals(3, grid[0] * grid[1] * grid[2], 4 * config["in_channels"])
    rotary = None
    if config["use_rotary_positional_embeddings"]:
        rotary = get_3d_rotary_pos_embed(config["attention_head_dim"], ((0, 0), grid[1:]), grid[1:],
                                         grid[0], device=device)
    elif model is not None:
        model.patch_embed.pos_embedding = model.patch_embed._get_positional_embeddings(
            2 * grid[1], 2 * grid[2], frames, device=device)
    text = normals(1, 1, config["max_text_seq_length"], config["text_embed_dim"]).to(**bf16)
    return {"hidden_states": latents_of(patches, grid, config).to(**bf16),
            "encoder_hidden_states": text, "timestep": torch.tensor([500], device=device),
            "image_rotary_emb": rotary, "return_dict": False}


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--frames", type=int, action="append", required=True)
    parser.add_argument("--size", type=int, nargs=2, default=[720, 480])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prediction")
    options = parser.parse_args()
    file = json.load(open(options.file))
    config = file["transformer"]
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}", flush=True)
    with torch.device("meta"):
        model = CogVideoXTransformer3DModel(**config)
    model = with_weights(model, 1)
    for compiled in range(1 + options.compile):
        if compiled:
            for block in model.transformer_blocks:
                block.compile(fullgraph=True, dynamic=False)
        for i, frames in enumerate(options.frames):
            inputs = pass_inputs(config, frames, options.size, "cuda", model)
            ms, (made,) = milliseconds(lambda: model(**inputs), options.rounds)
            print(f"{frames} frames, {'torch.compile by block' if compiled else 'eager'}: "
                  f"{ms:.2f} ms", flush=True)
            if i == 0 and not compiled and options.prediction:
                ours = torch.tensor(array.array("f", open(options.prediction, "rb").read()),
                                    dtype=torch.float64)
                theirs = tokens_of(made[0][None]).double().cpu().view(-1)
                off = (ours - theirs).square().mean().sqrt() / theirs.square().mean().sqrt()
                print(f"difference of predictions: {off:.5f} of their root mean square")


if __name__ == "__main__":
    main()
