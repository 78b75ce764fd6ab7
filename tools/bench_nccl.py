#!/usr/bin/env python3
"""Times NCCL's collectives through PyTorch in CUDA graphs, a process per GPU.

The sizes are those of bench_cuda_comm: bytes of the whole value, bf16. Prints JSON of the same form:
{"ranks": P, "rows": [{"op", "bytes", "us"}]}. NVLink multicast is off (NCCL_NVLS_ENABLE=0).
"""

import argparse
import json
import os
import sys

os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")


def sizes(op, max_bytes):
    size = 1 << 10
    while size <= max_bytes:
        # Every size of all_reduce, every fourth of the others.
        if op == "all_reduce" or (size >> 12).bit_length() % 2 == 1:
            yield size
        size *= 2


def worker(rank, ranks, args, rows):
    import torch
    import torch.distributed as dist

    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(args.port)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=ranks,
                            device_id=torch.device("cuda", rank))
    max_bytes = args.max_mb << 20
    # all_reduce works in place, and sums without end overflow: tiny numbers go on longest.
    x = torch.randn(max_bytes // 2, dtype=torch.bfloat16, device="cuda") * 1e-30
    y = torch.zeros(max_bytes // 2, dtype=torch.bfloat16, device="cuda")

    def launch(op, n):
        if op == "all_reduce":
            dist.all_reduce(x[:n])
        elif op == "reduce_scatter":
            dist.reduce_scatter_tensor(y[:n // ranks], x[:n])
        elif op == "all_gather":
            dist.all_gather_into_tensor(y[:n], x[:n // ranks])
        else:
            dist.all_to_all_single(y[:n], x[:n])

    def time_us(op, size):
        n = size // 2
        per_graph, replays = (64, 12) if size <= 1 << 20 else (16, 6) if size <= 16 << 20 else (4, 6)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(2):
                launch(op, n)
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                for _ in range(per_graph):
                    launch(op, n)
            dist.barrier()
            for _ in range(2):
                graph.replay()
            start = torch.cuda.Event(enable_timing=True)
            stop = torch.cuda.Event(enable_timing=True)
            start.record(stream)
            for _ in range(replays):
                graph.replay()
            stop.record(stream)
            stream.synchronize()
            us = start.elapsed_time(stop) * 1e3 / (per_graph * replays)
            longest = torch.tensor([us], device="cuda")
            dist.all_reduce(longest, op=dist.ReduceOp.MAX)
            return float(longest.item())

    for op in ("all_reduce", "reduce_scatter", "all_gather", "all_to_all"):
        for size in sizes(op, max_bytes):
            us = time_us(op, size)
            if rank == 0:
                rows.append({"op": op, "bytes": size, "us": round(us, 3)})
    if rank == 0:
        with open(args.json, "w") as out:
            json.dump({"ranks": ranks, "nccl": ".".join(map(str, torch.cuda.nccl.version())),
                       "torch": torch.__version__, "rows": rows}, out)
    dist.barrier()
    torch.cuda.synchronize()
    os._exit(0)  # a process group with captured graphs is slow to tear down


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=0, help="GPUs; 0: all")
    parser.add_argument("--max-mb", type=int, default=256)
    parser.add_argument("--port", type=int, default=29517)
    parser.add_argument("--json", default="/dev/stdout")
    args = parser.parse_args()
    try:
        import torch
        import torch.multiprocessing as multiprocessing
    except ImportError as error:
        sys.exit(f"bench_nccl: needs PyTorch ({error})")
    ranks = args.ranks or torch.cuda.device_count()
    if ranks < 2 or torch.cuda.device_count() < ranks:
        sys.exit(f"bench_nccl: {torch.cuda.device_count()} GPUs, needs {max(ranks, 2)}")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=worker, args=(rank, ranks, args, [])) for rank in
                 range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in processes))


if __name__ == "__main__":
    main()
