#!/usr/bin/env python3
"""Sequence parallelism of Flux.1 in PyTorch beside `braid bench image`: diffusers and xDiT.

  tools/bench_image_sp_torch.py configs/flux-1-dev.json --peer diffusers --mode ulysses,ring \\
      --ranks 2 --size 1024,2048 [--compile]

A process for each GPU. --peer diffusers is `enable_parallelism` with a ContextParallelConfig, xdit
is xFuserFlux1Transformer2DWrapper; both attend with cuDNN. usp is ulysses over 2 ranks, rings over
the others. Weights and inputs are those of bench_image_torch.py. Each step is compared with one
GPU's. Times are the slowest rank's medians, inputs and velocity on the GPU. --compile adds
torch.compile by block; after --seconds nothing more begins. --device cpu --blocks 1 checks the
calls without GPUs.
"""

import argparse
import json
import os
import statistics
import sys
import time

sys.dont_write_bytecode = True

import torch
import torch.distributed as dist

import bench_image_torch


def kind_of(peer):
    if peer == "xdit":
        from xfuser.model_executor.models.transformers import transformer_flux
        return transformer_flux.xFuserFlux1Transformer2DWrapper
    from diffusers import FluxTransformer2DModel
    return FluxTransformer2DModel


def degrees_of(mode, ranks):
    ulysses = {"ulysses": ranks, "ring": 1, "usp": 2}[mode]
    return {"ulysses_degree": ulysses, "ring_degree": ranks // ulysses}


def start_xdit(degrees, ranks, cpu):
    """The process groups of these degrees, in place of earlier ones."""
    from xfuser.config import xFuserArgs
    from xfuser.core.distributed import (init_distributed_environment, initialize_model_parallel,
                                         parallel_state, runtime_state)
    if cpu:
        from xfuser import envs
        envs.get_torch_distributed_backend = lambda: "gloo"
    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()
    init_distributed_environment(rank=dist.get_rank(), world_size=ranks)
    initialize_model_parallel(sequence_parallel_degree=ranks, **degrees)
    engine, _ = xFuserArgs(model="flux", **degrees).create_config()
    runtime_state._RUNTIME = runtime_state.RuntimeState(engine)
    runtime_state.get_runtime_state().set_attention_backend("SDPA_MATH" if cpu else "CUDNN")


def divided(config, peer, mode, ranks, cpu, weights):
    """A transformer with these weights whose step all ranks of the process group divide."""
    degrees = degrees_of(mode, ranks)
    if peer == "xdit":
        start_xdit(degrees, ranks, cpu)
    with torch.device("meta"):
        model = kind_of(peer)(**config)
    model.load_state_dict(weights, assign=True)
    model.eval()
    if peer == "diffusers":
        from diffusers import ContextParallelConfig
        model.set_attention_backend("native" if cpu else "_native_cudnn")
        model.enable_parallelism(config=ContextParallelConfig(**degrees))
    return model


def milliseconds(run, rounds, cpu):
    """The median of the slowest rank's times."""
    wait = (lambda: None) if cpu else torch.cuda.synchronize
    times = []
    for i in range(rounds + 2):
        wait()
        dist.barrier()
        start = time.perf_counter()
        result = run()
        wait()
        took = torch.tensor([1e3 * (time.perf_counter() - start)], device="cpu" if cpu else "cuda")
        dist.all_reduce(took, dist.ReduceOp.MAX)
        if i > 1:
            times.append(took.item())
    return statistics.median(times), result


@torch.inference_mode()
def work(rank, options, config):
    began = time.perf_counter()
    cpu = options.device == "cpu"
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(options.ranks),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    if not cpu:
        torch.cuda.set_device(rank)
    dist.init_process_group("gloo" if cpu else "nccl", rank=rank, world_size=options.ranks)
    torch._dynamo.config.recompile_limit = 64
    say = print if rank == 0 else lambda *_, **__: None
    with torch.device("meta"):
        alone = kind_of("diffusers")(**config)
    alone = bench_image_torch.with_weights(alone, 1, options.device)
    weights = alone.state_dict()
    inputs = {size: bench_image_torch.step_inputs(config, size, options.device)
              for size in options.size}
    wanted = {size: alone(**x)[0] for size, x in inputs.items()} if rank == 0 else {}
    del alone

    def time_is_left():
        left = torch.tensor([int(time.perf_counter() - began < options.seconds)],
                            device=options.device)
        dist.broadcast(left, 0)
        return bool(left.item())

    def measure(model, size, name):
        if not time_is_left():
            return say(f"{size} x {size}, {name}: left out, no time", flush=True)
        start = time.perf_counter()
        model(**inputs[size])
        first = time.perf_counter() - start
        ms, (velocity,) = milliseconds(lambda: model(**inputs[size]), options.rounds, cpu)
        off = ""
        if rank == 0:
            want = wanted[size].float()
            off = (velocity.float() - want).square().mean().sqrt() / want.square().mean().sqrt()
            off = f", {100 * off:.2f}% from one GPU's velocity"
        say(f"{size} x {size}, {name}: {ms:.2f} ms{off}, the first {first:.1f} s", flush=True)

    for mode in options.mode:
        name = f"{options.peer} {mode} over {options.ranks}"
        model = divided(config, options.peer, mode, options.ranks, cpu, weights)
        for size in options.size:
            measure(model, size, name)
        if not options.compile:
            continue
        for block in (*model.transformer_blocks, *model.single_transformer_blocks):
            block.compile(dynamic=False)
        for size in options.size:
            measure(model, size, f"{name}, torch.compile by block")
    dist.barrier()
    os._exit(0)  # threads of libraries are not waited for


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--peer", choices=["diffusers", "xdit"], default="diffusers")
    parser.add_argument("--mode", default="ulysses", help="ulysses, ring, usp; several with commas")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--size", default="1024")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--blocks", type=int, help="blocks of each kind, in place of all")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--port", type=int, default=29511)
    options = parser.parse_args()
    options.size = [int(size) for size in options.size.split(",")]
    options.mode = options.mode.split(",")
    for mode in options.mode:
        if mode not in ("ulysses", "ring", "usp"):
            parser.error(f"--mode {mode}: there are ulysses, ring, usp")
    config = json.load(open(options.file))["transformer"]
    if options.blocks:
        config |= {"num_layers": options.blocks, "num_single_layers": options.blocks}
    torch.multiprocessing.start_processes(
        work, start_method="fork" if options.device == "cpu" else "spawn", args=(options, config),
        nprocs=options.ranks)


if __name__ == "__main__":
    main()
