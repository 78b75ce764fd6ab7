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
--device cpu runs the same calls without GPUs: cuDNN's attention is then a kernel of the CPU.
"""

import argparse
import importlib
import json
import os
import statistics
import sys
import time

sys.dont_write_bytecode = True

import diffusers
import torch
import torch.distributed as dist

import bench_image_torch

PEERS, MODES = ("diffusers", "xdit"), ("ulysses", "ring", "usp")
WAYS = ("eager", "compile", "graph", "compile+graph")


class FluxPipeline:
    """A pipeline as far as xDiT's runtime state asks: its name, transformer and scale."""
    vae_scale_factor = 8

    def __init__(self, transformer):
        self.transformer = transformer


def class_of(peer):
    if peer == "xdit":
        from xfuser.model_executor.models.transformers import transformer_flux
        return transformer_flux.xFuserFlux1Transformer2DWrapper
    from diffusers import FluxTransformer2DModel
    return FluxTransformer2DModel


def without_gpus():
    """Makes PyTorch's calls end on the CPU: the accelerator, and cuDNN's attention operator."""
    torch._C._get_accelerator = lambda: torch.device("cpu")
    torch.accelerator.device_count = lambda: 1

    def attention(query, key, value, attn_bias=None, compute_log_sumexp=True, dropout_p=0.0,
                  is_causal=False, return_debug_mask=False, *, scale=None):
        out, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, dropout_p, is_causal, scale=scale)
        none = torch.empty(0)
        return (out, sums.unsqueeze(-1).contiguous(), none, none, query.shape[2], key.shape[2],
                none, none, none)
    library = torch.library.Library("aten", "IMPL")
    library.impl("_scaled_dot_product_cudnn_attention", attention, "CPU")
    return library


def xdit_without_gpus():
    """xDiT's groups by gloo; yunchang's groups, which xDiT leaves out when it sees no GPU."""
    from xfuser import envs
    from xfuser.model_executor.layers import usp
    from yunchang.globals import PROCESS_GROUP
    envs._is_cuda = lambda: False
    envs.get_torch_distributed_backend = lambda: "gloo"
    usp.PROCESS_GROUP = PROCESS_GROUP
    for name, module in list(sys.modules.items()):
        if name.startswith("xfuser") and hasattr(module, "HAS_LONG_CTX_ATTN"):
            module.HAS_LONG_CTX_ATTN = True


def degrees_of(mode, ranks):
    ulysses = {"ulysses": ranks, "ring": 1, "usp": 2}[mode]
    return {"ulysses_degree": ulysses, "ring_degree": ranks // ulysses}


def start_xdit(model, degrees, ranks, cpu):
    """xDiT's process groups and runtime state for this model, in place of earlier ones."""
    from xfuser.config import xFuserArgs
    from xfuser.core.distributed import (get_runtime_state, init_distributed_environment,
                                         initialize_model_parallel, initialize_runtime_state,
                                         parallel_state)
    from xfuser.model_executor.layers import usp
    usp.version_at_least = lambda *_: True  # as it answers; torch.compile cannot trace its parser
    for name in ("MODEL_REPLICA", "DP", "CFG", "SP", "PP", "TP", "FS", "VAE"):
        setattr(parallel_state, "_" + name, None)  # not destroyed: CUDA graphs may name the groups
    init_distributed_environment(rank=dist.get_rank(), world_size=ranks)
    initialize_model_parallel(sequence_parallel_degree=ranks, **degrees)
    engine, _ = xFuserArgs(model="flux", **degrees).create_config()
    initialize_runtime_state(FluxPipeline(model), engine)
    if cpu:
        get_runtime_state().set_attention_backend("CUDNN")
    return get_runtime_state()


def divided(config, peer, mode, ranks, cpu, weights):
    """A transformer with these weights whose step all ranks divide; also xDiT's runtime state."""
    degrees = degrees_of(mode, ranks)
    if peer == "xdit" and cpu:
        xdit_without_gpus()
    with torch.device("meta"):
        model = class_of(peer)(**config)
    model.load_state_dict(weights, assign=True)
    model.eval()
    if peer == "xdit":
        return model, start_xdit(model, degrees, ranks, cpu)
    from diffusers import ContextParallelConfig
    model.set_attention_backend("_native_cudnn")
    model.enable_parallelism(config=ContextParallelConfig(**degrees))
    return model, None


def as_graph(run):
    """A function that replays run as one CUDA graph and returns the outputs of the capture."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        outputs = run()

    def replay():
        graph.replay()
        return outputs
    return replay


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


class Bench:
    """Cases over this process's group: weights, inputs, and one GPU's velocities."""

    def __init__(self, rank, options, config):
        self.rank, self.options, self.config = rank, options, config
        self.cpu = options.device == "cpu"
        self.began = time.perf_counter()
        with torch.device("meta"):
            alone = class_of("diffusers")(**config)
        alone = bench_image_torch.with_weights(alone, 1, options.device)
        self.weights = alone.state_dict()
        self.inputs = {size: bench_image_torch.step_inputs(config, size, options.device)
                       for size in options.size}
        self.wanted = {}
        if rank == 0:
            self.wanted = {size: alone(**x)[0].float() for size, x in self.inputs.items()}

    def say(self, text):
        if self.rank == 0:
            print(text, flush=True)

    def time_is_left(self):
        left = torch.tensor([int(time.perf_counter() - self.began < self.options.seconds)],
                            device=self.options.device)
        dist.broadcast(left, 0)
        return bool(left.item())

    def difference(self, size, velocity):
        if self.rank:
            return ""
        want = self.wanted[size]
        off = (velocity.float() - want).square().mean().sqrt() / want.square().mean().sqrt()
        return f", {100 * off:.2f}% from one GPU's velocity"

    def measure(self, make, size, name):
        """Prints the time of the step that make() returns."""
        if not self.time_is_left():
            return self.say(f"{size} x {size}, {name}: left out, no time")
        start = time.perf_counter()
        run = make()
        run()
        if not self.cpu:
            torch.cuda.synchronize()
        first = time.perf_counter() - start
        ms, (velocity,) = milliseconds(run, self.options.rounds, self.cpu)
        self.say(f"{size} x {size}, {name}: {ms:.2f} ms{self.difference(size, velocity)}, "
                 f"the first {first:.1f} s")

    def case(self, peer, mode, way, sizes):
        name = f"{peer} {mode} over {self.options.ranks}"
        model, state = divided(self.config, peer, mode, self.options.ranks, self.cpu, self.weights)
        if state:
            name += f" (attention: {state.attention_backend.value})"
        if "compile" in way:
            name += ", torch.compile by block"
            for block in (*model.transformer_blocks, *model.single_transformer_blocks):
                block.compile(dynamic=False)

        def step(size):
            if state:
                state.set_input_parameters(
                    height=size, width=size, batch_size=1, num_inference_steps=28,
                    max_condition_sequence_length=self.inputs[size]["txt_ids"].shape[0],
                    split_text_embed_in_sp=True)
            return lambda: model(**self.inputs[size])
        if way != "graph":
            for size in sizes:
                self.measure(lambda: step(size), size, name)
        if "graph" in way:
            for size in sizes:
                self.measure(lambda: as_graph(step(size)), size, f"{name}, one CUDA graph")


@torch.inference_mode()
def work(rank, options, config):
    cpu = options.device == "cpu"
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(options.ranks),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    torch._dynamo.config.recompile_limit = 64
    library = without_gpus() if cpu else None  # in force as long as it lives
    for peer, _, way, _ in options.case:
        class_of(peer)
        if "compile" in way:
            importlib.import_module("torch._inductor.async_compile").maybe_warm_pool()
    while options.begin and not os.path.exists(options.begin):
        time.sleep(0.1)
    if not cpu:
        torch.cuda.set_device(rank)
    dist.init_process_group("gloo" if cpu else "nccl", rank=rank, world_size=options.ranks)
    bench = Bench(rank, options, config)
    bench.say(f"torch {torch.__version__}, diffusers {diffusers.__version__}, "
              f"{options.ranks} x {'CPU' if cpu else torch.cuda.get_device_name()}, weights and one "
              f"GPU's velocities after {time.perf_counter() - bench.began:.1f} s")
    for peer, mode, way, size in options.case:
        try:
            bench.case(peer, mode, way, [size] if size else options.size)
        except Exception as error:  # of one case: the next may succeed
            text = " ".join(str(error).split())[:500]
            print(f"rank {rank}, {peer} {mode} {way}: {type(error).__name__}: {text}", flush=True)
        torch._dynamo.reset()
        if not cpu:
            torch.cuda.empty_cache()
    dist.barrier()
    os._exit(0)  # threads of libraries are not waited for


def cases(text):
    found = []
    for case in text.split(","):
        parts = case.split(":") + (["eager"] if case.count(":") == 1 else [])
        size = int(parts.pop()) if len(parts) == 4 and parts[3].isdigit() else None
        if len(parts) != 3 or any(x not in known for x, known in zip(parts, (PEERS, MODES, WAYS))):
            raise argparse.ArgumentTypeError(
                f"{case}: a case is PEER:MODE:WAY:SIZE; peers are {', '.join(PEERS)}, modes "
                f"{', '.join(MODES)}, ways {', '.join(WAYS)}")
        found.append((*parts, size))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--case", type=cases, default=cases("diffusers:ulysses"),
                        help="PEER:MODE, PEER:MODE:WAY or PEER:MODE:WAY:SIZE; several with commas")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--size", default="1024")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--blocks", type=int, help="blocks of each kind, in place of all")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--begin", metavar="FILE", help="the file that lets the work begin")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--port", type=int, default=29511)
    options = parser.parse_args()
    sizes = [int(size) for size in options.size.split(",")]
    options.size = list(dict.fromkeys(sizes + [size for *_, size in options.case if size]))
    if options.device == "cpu" and any("graph" in way for _, _, way, _ in options.case):
        parser.error("a CUDA graph wants GPUs")
    config = json.load(open(options.file))["transformer"]
    if options.blocks:
        config |= {"num_layers": options.blocks, "num_single_layers": options.blocks}
    torch.multiprocessing.start_processes(
        work, start_method="fork" if options.device == "cpu" else "spawn", args=(options, config),
        nprocs=options.ranks)


if __name__ == "__main__":
    main()
