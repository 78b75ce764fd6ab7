#!/usr/bin/env python3
"""Sequence parallelism of CogVideoX in PyTorch beside `braid bench video`: diffusers and xDiT.

  tools/bench_video_sp_torch.py configs/cogvideox-5b.json --ranks 2 --frames 49 \\
      --case diffusers:ulysses,diffusers:ulysses:compile,xdit:ulysses,xdit:ulysses:compile

Cases are those of bench_image_sp_torch.py, with frames for a size; videos are 720 x 480. A step is
a pass of one text; weights and inputs are those of bench_video_torch.py. diffusers has no plan of
context parallelism for CogVideoX, and its attention knows no ranks: both are given here, after
those of its other families. xdit is xDiT's transformer wrapper, with the runtime state that xDiT
makes for a CogVideoXPipeline; ranks divide text tokens and rows of latents, as its pipeline does.
xdit:cfg is a step of both passes of guidance, each on one of two ranks, which gather predictions.
"""

import sys

sys.dont_write_bytecode = True

import torch

import bench_video_torch
import step_peers

WIDTH, HEIGHT = 720, 480


class CogVideoXPipeline:
    """A pipeline as far as xDiT's runtime state asks: its name, transformer and scales."""
    vae_scale_factor_spatial, vae_scale_factor_temporal = 8, 4

    def __init__(self, transformer):
        self.transformer = transformer


class DividedAttention:
    """diffusers' attention of CogVideoX, by the call that divides it over ranks."""
    _attention_backend = _parallel_config = None

    def __call__(self, attn, hidden_states, encoder_hidden_states, attention_mask=None,
                 image_rotary_emb=None):
        from diffusers.models.attention_dispatch import dispatch_attention_fn
        from diffusers.models.embeddings import apply_rotary_emb
        text = encoder_hidden_states.shape[1]
        x = torch.cat([encoder_hidden_states, hidden_states], 1)
        query, key, value = (linear(x).unflatten(-1, (attn.heads, -1))
                             for linear in (attn.to_q, attn.to_k, attn.to_v))
        query, key = attn.norm_q(query), attn.norm_k(key)
        if image_rotary_emb is not None:
            for part in (query, key):
                part[:, text:] = apply_rotary_emb(part[:, text:], image_rotary_emb, sequence_dim=1)
        out = dispatch_attention_fn(query, key, value, backend=self._attention_backend,
                                    parallel_config=self._parallel_config)
        out = attn.to_out[1](attn.to_out[0](out.flatten(2)))
        return out[:, text:], out[:, :text]


class CogVideoXFamily:
    name, result = "cogvideox", "prediction"

    def title(self, frames):
        return f"{WIDTH} x {HEIGHT}, {frames} frames"

    def load(self, peer):
        """The class of a peer's transformer."""
        if peer == "xdit":
            from xfuser.model_executor.models.transformers import cogvideox_transformer_3d
            return cogvideox_transformer_3d.xFuserCogVideoXTransformer3DWrapper
        from diffusers import CogVideoXTransformer3DModel
        return CogVideoXTransformer3DModel

    def model(self, config):
        return self.load("diffusers")(**config)

    def inputs(self, config, frames, device):
        return bench_video_torch.pass_inputs(config, frames, (WIDTH, HEIGHT), device)

    def blocks(self, model):
        return model.transformer_blocks

    def enable_parallelism(self, model, attention, config):
        from diffusers.models._modeling_parallel import ContextParallelInput, ContextParallelOutput
        model.set_attn_processor(DividedAttention())
        model.set_attention_backend(attention)
        rows, table = ContextParallelInput(1, 3), ContextParallelInput(0, 2)
        model.enable_parallelism(config=config, cp_plan={
            "": {"image_rotary_emb": [table, table]},
            "transformer_blocks.0": {"hidden_states": rows, "encoder_hidden_states": rows},
            "proj_out": ContextParallelOutput(gather_dim=1, expected_dims=3)})

    def xdit_base(self, config):
        return self.model(config)

    def pipeline(self, model):
        return CogVideoXPipeline(model)

    def xdit_model(self, model):
        return self.load("xdit")(model)

    def xdit_inputs(self, state, frames, inputs):
        """This rank's share, as xDiT's pipeline cuts it: text tokens, and rows of all frames."""
        from xfuser.core.distributed import (get_sequence_parallel_rank,
                                             get_sequence_parallel_world_size)
        rank, ranks = get_sequence_parallel_rank(), get_sequence_parallel_world_size()
        state.set_video_input_parameters(
            height=HEIGHT, width=WIDTH, num_frames=frames, batch_size=1, num_inference_steps=50,
            split_text_embed_in_sp=True)
        latents, (begin, end) = inputs["hidden_states"], state.pp_patches_token_start_end_idx_global[0]

        def share(x, dim):
            return x.chunk(ranks, dim)[rank].contiguous()
        tables = [x.unflatten(0, (latents.shape[1], -1))[:, begin:end].flatten(0, 1)
                  for x in inputs["image_rotary_emb"]]
        return inputs | {"hidden_states": share(latents, 3), "image_rotary_emb": tables,
                         "encoder_hidden_states": share(inputs["encoder_hidden_states"], 1)}

    def xdit_result(self, result):
        from xfuser.core.distributed import get_sp_group
        return get_sp_group().all_gather(result.contiguous(), dim=3)


if __name__ == "__main__":
    step_peers.measure(CogVideoXFamily(), __doc__, ("--frames", "49"), ("num_layers",))
