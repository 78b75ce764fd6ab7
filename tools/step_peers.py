"""Steps of diffusion transformers that ranks divide, in diffusers and xDiT: processes and times.

A family (FluxFamily in bench_image_sp_torch.py, CogVideoXFamily in bench_video_sp_torch.py) gives
its models, inputs and pipeline. A case is (peer, mode, way, size); bench_image_sp_torch.py says
what peers, modes and ways are.
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

PEERS, MODES = ("diffusers", "xdit"), ("ulysses", "ring", "usp", "cfg")
WAYS = ("eager", "compile", "graph", "compile+graph")


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
    if mode == "cfg":
        return {"ulysses_degree": 1, "ring_degree": 1}
    ulysses = {"ulysses": ranks, "ring": 1, "usp": 2}[mode]
    return {"ulysses_degree": ulysses, "ring_degree": ranks // ulysses}


def start_xdit(family, pipeline, degrees, ranks, cpu):
    """xDiT's process groups and runtime state for this pipeline, in place of earlier ones."""
    from xfuser.config import xFuserArgs
    from xfuser.core.distributed import (get_runtime_state, init_distributed_environment,
                                         initialize_model_parallel, initialize_runtime_state,
                                         parallel_state)
    from xfuser.model_executor.layers import usp
    usp.version_at_least = lambda *_: True  # as it answers; torch.compile cannot trace its parser
    for name in ("MODEL_REPLICA", "DP", "CFG", "SP", "PP", "TP", "FS", "VAE"):
        setattr(parallel_state, "_" + name, None)  # not destroyed: CUDA graphs may name the groups
    init_distributed_environment(rank=dist.get_rank(), world_size=ranks)
    passes = ranks // (degrees["ulysses_degree"] * degrees["ring_degree"])  # at once, of guidance
    initialize_model_parallel(sequence_parallel_degree=ranks // passes,
                              classifier_free_guidance_degree=passes, **degrees)
    engine, _ = xFuserArgs(model=family.name, use_cfg_parallel=passes > 1, **degrees).create_config()
    initialize_runtime_state(pipeline, engine)
    if cpu:
        get_runtime_state().set_attention_backend("CUDNN")
    return get_runtime_state()


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
    """Cases over this process's group: weights, inputs, and one GPU's results."""

    def __init__(self, family, rank, options, config):
        self.family, self.rank, self.options, self.config = family, rank, options, config
        self.cpu = options.device == "cpu"
        self.began = time.perf_counter()
        with torch.device("meta"):
            alone = family.model(config)
        alone = bench_image_torch.with_weights(alone, 1, options.device)
        self.weights = alone.state_dict()
        self.inputs = {size: family.inputs(config, size, options.device) for size in options.size}
        self.wanted = {}
        if rank == 0:
            self.wanted = {size: alone(**x)[0].float() for size, x in self.inputs.items()}

    def say(self, text):
        if self.rank == 0:
            print(text, flush=True)

    def say_link_speed(self):
        """Bytes/s each way of blocks that all ranks send and receive at once, in a ring."""
        block = torch.empty((1 if self.cpu else 96) << 20, device=self.options.device,
                            dtype=torch.uint8)
        into, ranks = torch.empty_like(block), self.options.ranks
        moves = [dist.P2POp(dist.isend, block, (self.rank + 1) % ranks),
                 dist.P2POp(dist.irecv, into, (self.rank - 1) % ranks)]

        def turn():
            for work in dist.batch_isend_irecv(moves):
                work.wait()
        ms, _ = milliseconds(turn, 3, self.cpu)
        self.say(f"send and receive at once: {block.numel() / ms / 1e6:.1f} GB/s each way")

    def time_is_left(self):
        left = torch.tensor([int(time.perf_counter() - self.began < self.options.seconds)],
                            device=self.options.device)
        dist.broadcast(left, 0)
        return bool(left.item())

    def divided(self, peer, mode):
        """A transformer with the weights whose step all ranks divide; also xDiT's state."""
        degrees = degrees_of(mode, self.options.ranks)
        with torch.device("meta"):
            model = self.family.xdit_base(self.config) if peer == "xdit" else \
                self.family.model(self.config)
        model.load_state_dict(self.weights, assign=True)
        model.eval()
        if peer == "xdit":
            if self.cpu:
                xdit_without_gpus()
            state = start_xdit(self.family, self.family.pipeline(model), degrees,
                               self.options.ranks, self.cpu)
            return self.family.xdit_model(model), state
        if mode == "cfg":
            raise ValueError("diffusers divides no passes of guidance")
        from diffusers import ContextParallelConfig
        self.family.enable_parallelism(model, "_native_cudnn", ContextParallelConfig(**degrees))
        return model, None

    def difference(self, size, result):
        if self.rank:
            return ""
        want = self.wanted[size]
        off = (result.float() - want).square().mean().sqrt() / want.square().mean().sqrt()
        return f", {100 * off:.2f}% from one GPU's {self.family.result}"

    def measure(self, make, whole, size, name):
        """Prints the time of the step that make() returns; whole() joins the ranks' results."""
        name = f"{self.family.title(size)}, {name}"
        if not self.time_is_left():
            return self.say(f"{name}: left out, no time")
        start = time.perf_counter()
        run = make()
        run()
        if not self.cpu:
            torch.cuda.synchronize()
        first = time.perf_counter() - start
        ms, (result,) = milliseconds(run, self.options.rounds, self.cpu)
        self.say(f"{name}: {ms:.2f} ms{self.difference(size, whole(result))}, the first "
                 f"{first:.1f} s")

    def case(self, peer, mode, way, sizes):
        name = f"{peer} {mode} over {self.options.ranks}"
        model, state = self.divided(peer, mode)
        if state:
            name += f" (attention: {state.attention_backend.value})"
        if "compile" in way:
            name += ", torch.compile by block"
            for block in self.family.blocks(model):
                block.compile(dynamic=False)

        def step(size):
            inputs = self.inputs[size]
            if not state:
                return lambda: model(**inputs)
            inputs = self.family.xdit_inputs(state, size, inputs)
            if mode != "cfg":
                return lambda: model(**inputs)
            from xfuser.core.distributed import get_cfg_group
            return lambda: (get_cfg_group().all_gather(model(**inputs)[0])[:1],)
        whole = self.family.xdit_result if state else lambda result: result
        if way != "graph":
            for size in sizes:
                self.measure(lambda: step(size), whole, size, name)
        if "graph" in way:
            for size in sizes:
                self.measure(lambda: as_graph(step(size)), whole, size, f"{name}, one CUDA graph")


@torch.inference_mode()
def work(rank, family, options, config):
    cpu = options.device == "cpu"
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(options.ranks),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    torch._dynamo.config.recompile_limit = 64
    library = without_gpus() if cpu else None  # in force as long as it lives
    for peer, _, way, _ in options.case:
        family.load(peer)
        if "compile" in way:
            importlib.import_module("torch._inductor.async_compile").maybe_warm_pool()
    while options.begin and not os.path.exists(options.begin):
        time.sleep(0.1)
    if not cpu:
        torch.cuda.set_device(rank)
        torch.backends.cuda.enable_flash_sdp(False)  # cuDNN's attention for plain calls, too
        torch.backends.cuda.enable_mem_efficient_sdp(False)
    if options.no_p2p:
        os.environ["NCCL_P2P_DISABLE"] = "1"
    dist.init_process_group("gloo" if cpu else "nccl", rank=rank, world_size=options.ranks)
    bench = Bench(family, rank, options, config)
    bench.say(f"torch {torch.__version__}, diffusers {diffusers.__version__}, "
              f"{options.ranks} x {'CPU' if cpu else torch.cuda.get_device_name()}, weights and one "
              f"GPU's results after {time.perf_counter() - bench.began:.1f} s")
    if options.no_p2p:
        bench.say_link_speed()
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


def measure(family, description, size, blocks):
    """The command: cases of a family at `size` (names and default); `blocks`: fields they set."""
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--case", type=cases, default=cases("diffusers:ulysses"),
                        help="PEER:MODE, PEER:MODE:WAY or PEER:MODE:WAY:SIZE; several with commas")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument(size[0], dest="size", default=size[1])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--blocks", type=int, help="blocks of each kind, in place of all")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--no-p2p", action="store_true",
                        help="NCCL goes through host memory, as between machines; says its pace")
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
        config |= dict.fromkeys(blocks, options.blocks)
    torch.multiprocessing.start_processes(
        work, start_method="fork" if options.device == "cpu" else "spawn",
        args=(family, options, config), nprocs=options.ranks)
