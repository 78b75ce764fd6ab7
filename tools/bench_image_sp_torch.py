#!/usr/bin/env python3
"""Sequence parallelism of Flux.1 in PyTorch beside `braid bench image`: diffusers and xDiT.

  tools/bench_image_sp_torch.py configs/flux-1-dev.json --ranks 4 --size 1024,2048 \\
      --case xdit:ulysses,xdit:ring:graph,diffusers:ulysses:compile+graph

A case is PEER:MODE, PEER:MODE:WAY or PEER:MODE:WAY:SIZE; cases run in the order given, each at its
own size or at every --size. Peers: diffusers is `enable_parallelism` with a ContextParallelConfig;
xdit is the transformer of xDiT's runner of Flux.1, with the runtime state that xDiT makes for a
FluxPipeline. Modes: ulysses, ring, usp (ulysses over 2 ranks, rings over the others). Ways: eager;
compile, torch.compile by block; graph, the step replayed as a CUDA graph; compile+graph, a compiled
step, then its graph. Attention is cuDNN's for diffusers, and xDiT's own choice for xDiT, printed.
Weights and inputs are those of bench_image_torch.py, a process for each GPU. Each step is compared
with one GPU's. Times are the slowest rank's medians, inputs and velocity on the GPU. After
--seconds nothing more is timed; with --begin FILE, nothing but imports happens before FILE exists.
--no-p2p: whole steps of USP as published between machines, a GPU each, over NCCL's two-sided calls:
Braid's beside are braid bench image --machines 2x1 --link-gbps PACE, with the pace printed here.
--device cpu runs the same calls without GPUs: cuDNN's attention is then a kernel of the CPU.
"""

import sys

sys.dont_write_bytecode = True

import bench_image_torch
import step_peers


class FluxPipeline:
    """A pipeline as far as xDiT's runtime state asks: its name, transformer and scale."""
    vae_scale_factor = 8

    def __init__(self, transformer):
        self.transformer = transformer


class FluxFamily:
    name, result = "flux", "velocity"

    def title(self, size):
        return f"{size} x {size}"

    def load(self, peer):
        """The class of a peer's transformer."""
        if peer == "xdit":
            from xfuser.model_executor.models.transformers import transformer_flux
            return transformer_flux.xFuserFlux1Transformer2DWrapper
        from diffusers import FluxTransformer2DModel
        return FluxTransformer2DModel

    def model(self, config):
        return self.load("diffusers")(**config)

    def inputs(self, config, size, device):
        return bench_image_torch.step_inputs(config, size, device)

    def blocks(self, model):
        return (*model.transformer_blocks, *model.single_transformer_blocks)

    def enable_parallelism(self, model, attention, config):
        model.set_attention_backend(attention)
        model.enable_parallelism(config=config)

    def xdit_base(self, config):
        return self.load("xdit")(**config)

    def pipeline(self, model):
        return FluxPipeline(model)

    def xdit_model(self, model):
        return model

    def xdit_inputs(self, state, size, inputs):
        state.set_input_parameters(
            height=size, width=size, batch_size=1, num_inference_steps=28,
            max_condition_sequence_length=inputs["txt_ids"].shape[0], split_text_embed_in_sp=True)
        return inputs

    def xdit_result(self, result):
        return result


if __name__ == "__main__":
    step_peers.measure(FluxFamily(), __doc__, ("--size", "1024"), ("num_layers", "num_single_layers"))
