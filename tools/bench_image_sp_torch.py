#!/usr/bin/env python3
"""Sequence parallelism of Flux.1 in PyTorch beside `braid bench image`: diffusers and xDiT.

  tools/bench_image_sp_torch.py configs/flux-1-dev.json --peer diffusers --mode ulysses --ranks 2 \\
      --size 1024,2048 [--compile]

A process for each GPU. --peer diffusers is `enable_parallelism` with a ContextParallelConfig, xdit
is xFuserFlux1Transformer2DWrapper; both attend with cuDNN. Weights and inputs are those of
bench_image_torch.py. Each step is compared with one GPU's. Times are the slowest rank's medians,
inputs and velocity on the GPU. --device cpu --blocks 1 checks the calls without GPUs.
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


def one_rank(config, peer, mode, ranks, cpu):
    """A transformer whose step is divided over all ranks of the process group."""
    from diffusers import ContextParallelConfig, FluxTransformer2DModel
    degrees = {"ulysses_degree": ranks if mode == "ulysses" else 1,
               "ring_degree": ranks if mode == "ring" else 1}
    if peer == "xdit":
        from xfuser.config import xFuserArgs
        from xfuser.core.distributed import init_distributed_environment, initialize_model_parallel
        from xfuser.core.distributed import runtime_state
        from xfuser.model_executor.models.transformers import transformer_flux
        init_distributed_environment(rank=dist.get_rank(), world_size=ranks)
        initialize_model_parallel(sequence_parallel_degree=ranks, **degrees)
        engine, _ = xFuserArgs(model="flux", **degrees).create_config()
        runtime_state._RUNTIME = runtime_state.RuntimeState(engine)
        runtime_state.get_runtime_state().set_attention_backend("SDPA_MATH" if cpu else "CUDNN")
        kind = transformer_flux.xFuserFlux1Transformer2DWrapper
    else:
        kind = FluxTransformer2DModel
    with torch.device("meta"):
        model = kind(**config)
    model = bench_image_torch.with_weights(model, 1, "cpu" if cpu else "cuda")
    if peer == "diffusers":
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
    cpu = options.device == "cpu"
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(options.ranks),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    if not cpu:
        torch.cuda.set_device(rank)
    dist.init_process_group("gloo" if cpu else "nccl", rank=rank, world_size=options.ranks)
    say = print if rank == 0 else lambda *_, **__: None
    alone = bench_image_torch.with_weights(meta_model(config), 1, options.device) if rank == 0 else None
    model = one_rank(config, options.peer, options.mode, options.ranks, cpu)
    name = f"{options.peer} {options.mode} over {options.ranks}"

    def measure(name):
        for size in options.size:
            inputs = bench_image_torch.step_inputs(config, size, options.device)
            start = time.perf_counter()
            model(**inputs)
            first = time.perf_counter() - start
            ms, (velocity,) = milliseconds(lambda: model(**inputs), options.rounds, cpu)
            off = ""
            if alone is not None:
                (wanted,) = alone(**inputs)
                off = (velocity - wanted).float().square().mean().sqrt() / wanted.float().square().mean().sqrt()
                off = f", {100 * off:.2f}% from one GPU's velocity"
            say(f"{size} x {size}, {name}: {ms:.2f} ms{off}, the first {first:.1f} s", flush=True)

    measure(name)
    if options.compile:
        for block in (*model.transformer_blocks, *model.single_transformer_blocks):
            block.compile(dynamic=False)
        measure(f"{name}, torch.compile by block")
    dist.barrier()
    os._exit(0)  # threads of libraries are not waited for


def meta_model(config):
    from diffusers import FluxTransformer2DModel
    with torch.device("meta"):
        return FluxTransformer2DModel(**config)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--peer", choices=["diffusers", "xdit"], default="diffusers")
    parser.add_argument("--mode", choices=["ulysses", "ring"], default="ulysses")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--size", default="1024")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--blocks", type=int, help="blocks of each kind, in place of all")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--port", type=int, default=29511)
    options = parser.parse_args()
    options.size = [int(size) for size in options.size.split(",")]
    config = json.load(open(options.file))["transformer"]
    if options.blocks:
        config |= {"num_layers": options.blocks, "num_single_layers": options.blocks}
    torch.multiprocessing.start_processes(work, start_method="fork" if options.device == "cpu" else "spawn", args=(options, config), nprocs=options.ranks)


if __name__ == "__main__":
    main()
