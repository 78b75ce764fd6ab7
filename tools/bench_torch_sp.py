#!/usr/bin/env python3
"""Sequence-parallel attention in PyTorch over NCCL, two-sided, a process for each GPU.

The shapes, dtype (bf16) and work are those of `braid bench attention --device cuda`: a joint prefix
is whole on every rank and so is its result. Attention is cuDNN's, or FlashAttention's where cuDNN
has no answer; of each mode the fastest variant counts:
  ulysses  q, k, v in one all_to_all (packed first) or in three
  ring     keys and values go round by batched send and receive under the attention of those that
           are there; parts merge by their log-sum-exp
  usp      ulysses inside a machine, rings across machines
  tas      topology-aware: ulysses across machines, rings inside a machine
  torus    torus attention of as many groups as machines, heads divided over all ranks: queries,
           then keys and values by batched send and receive under the attention of what is there,
           results under the last stage; what moves inside a machine goes first and last
--machines NxM: M ranks in a row are a machine. Without it each rank is one, where tas is ulysses
and usp the ring. Every mode's results are compared with the first one's, those of a tiny shape with
plain attention over everything in one process, where a large difference is an error.
Times are of steps that follow each other, the longest rank's, medians. NVLink multicast is off.
--no-p2p makes NCCL go through host memory, as between machines; --hosts makes it take machines for
hosts: NVLink inside, sockets of the loopback between them. --device cpu checks the exchanges
without GPUs (gloo, f32): --device cpu --machines 2x2 --shape tiny -r 1 --seconds 0.01
"""

import argparse
import json
import math
import os
import re
import statistics
import sys
import time

sys.dont_write_bytecode = True

os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"

SHAPES = {  # tokens, joint prefix, heads, head dim
    "flux-3072": (192 * 192, 512, 24, 128),
    "flux-4096": (256 * 256, 512, 24, 128),
    "cogvideox-20s": (41 * 48 * 85, 226, 24, 64),
    "cogvideox-40s": (81 * 48 * 85, 226, 24, 64),
    "tiny": (256, 64, 4, 64),
    "tiny-8": (256, 58, 8, 64),
}
MODES = ["ulysses", "ring", "usp", "tas", "torus"]


def worker(rank, ranks, machines, args):
    import torch
    import torch.distributed as dist

    import torch_sp_modes as modes

    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(args.port)
    if args.no_p2p:
        os.environ["NCCL_P2P_DISABLE"] = "1"
    if args.hosts:
        os.environ |= {"NCCL_HOSTID": f"machine-{rank // machines[1]}", "NCCL_SOCKET_IFNAME": "lo",
                       "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_NTHREADS": "4",
                       "NCCL_NSOCKS_PERTHREAD": "4"}
    cuda = args.device == "cuda"
    if cuda:
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", rank=rank, world_size=ranks,
                                device_id=torch.device("cuda", rank))
    else:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", rank=rank, world_size=ranks)
    if not args.no_compile:
        modes.merge = torch.compile(modes.merge, dynamic=False)
    all_ranks = modes.Ranks(rank, ranks, machines, args.device)

    def elapsed(run, n):
        """Seconds of `n` runs that follow what went before."""
        if not cuda:
            begin = time.perf_counter()
            for _ in range(n):
                run()
            return time.perf_counter() - begin
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(n):
            run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    def largest(value):
        """Of all ranks."""
        value = torch.tensor([value], device=args.device)
        dist.all_reduce(value, op=dist.ReduceOp.MAX)
        return float(value)

    def link_speed():
        """Bytes/s each way of blocks sent and received at once, with ranks of the machines beside."""
        block = torch.empty((96 if cuda else 1) << 20, device=args.device, dtype=torch.uint8)
        into = torch.empty_like(block)
        away = machines[1] % ranks or 1
        moves = [(block, (rank + away) % ranks, into, (rank - away) % ranks)]
        turn = lambda: modes.wait(all_ranks.exchange(moves))
        elapsed(turn, 3)
        return 3 * block.numel() / elapsed(turn, 3)

    def timed(run, seconds):
        """Milliseconds."""
        elapsed(run, 1)
        n = torch.tensor([max(1, min(20, int(seconds / elapsed(run, 1))))], device=args.device)
        dist.broadcast(n, 0)
        n = int(n)
        times = []
        for _ in range(args.repetitions):
            dist.barrier()
            if n > 1:
                run()
            times.append(largest(elapsed(run, n) / n * 1e3))
        return statistics.median(times)

    # Whether cuDNN takes the call at all.
    try:
        t = all_ranks.empty(1, 64, 2, 64).normal_()
        modes.attention(t, t, t, True)
    except RuntimeError as error:
        print(f"# cuDNN: {str(error).splitlines()[0]}; FlashAttention instead", file=sys.stderr)
        modes.backends = modes.backends[1:]
    if rank == 0:
        where = f", {machines[0]} machines of {machines[1]}" if machines[1] > 1 else ""
        if cuda:
            print(f"# torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, NCCL "
                  f"{'.'.join(map(str, torch.cuda.nccl.version()))}"
                  f"{', no peer access' if args.no_p2p else ''}"
                  f"{', sockets between machines' if args.hosts else ''}, {ranks} GPUs{where}",
                  flush=True)
        else:
            print(f"# torch {torch.__version__}, gloo, {ranks} CPU ranks{where}", flush=True)
    speed = link_speed()
    if rank == 0:
        print(f"# send and receive at once: {speed / 1e9:.1f} GB/s each way")
        print("| shape | mode | time ms | attention alone ms | exposed ms | variant | difference |")
        print("|---|---|---:|---:|---:|---|---:|", flush=True)
    record, wrong = {"link": speed}, False
    for name in args.shape.split(","):
        runs, alone, plain = modes.build(all_ranks, SHAPES[name])
        tiny = name.startswith("tiny")
        first = plain() if tiny else None
        for mode in args.mode.split(","):
            if not args.no_compile:
                torch.compiler.reset()  # so that no mode meets the limit of compiled variants
            base = timed(alone[mode], args.seconds)
            found, differs = {}, 0
            for variant, run in runs.items():
                if not variant.startswith(mode) or variant in args.skip.split(","):
                    continue
                found[variant] = timed(run, args.seconds)
                got = [t.float() for t in run()]
                first = first or got
                differs = max(differs, *(float((a - b).abs().nan_to_num(math.inf).max())
                                         for a, b in zip(got, first)))
                del got
            if not found:
                continue
            differs = largest(differs)
            best = min(found, key=found.get)
            record[f"{name} {mode}"] = {"ms": found, "alone": base, "difference": differs}
            if rank == 0:
                print(f"| {name} | {mode} | {found[best]:.3f} | {base:.3f} | "
                      f"{found[best] - base:.3f} | {best} | {differs:.2g} |", flush=True)
            limit = 2e-2 if cuda else 1e-5
            if tiny and differs > limit:
                wrong = True
                if rank == 0:
                    print(f"bench_torch_sp: {mode} of '{name}' differs from plain attention by "
                          f"{differs:.2g}, more than {limit}", file=sys.stderr)
        del runs, alone, plain, first
        if cuda:
            torch.cuda.empty_cache()
    if rank == 0 and args.json:
        with open(args.json, "w") as out:
            json.dump(record, out, indent=1)
    dist.barrier()
    if cuda:
        torch.cuda.synchronize()
    sys.stdout.flush()
    os._exit(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=0, help="GPUs; 0: all, or --machines")
    parser.add_argument("--machines", default="", metavar="NxM",
                        help="M ranks in a row are a machine; without it each rank is one")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: to check")
    parser.add_argument("--shape", default="flux-3072", help="comma-separated: " + ", ".join(SHAPES))
    parser.add_argument("--mode", default="", help="comma-separated; without it all that differ")
    parser.add_argument("--skip", default="", help="variants to leave out, comma-separated")
    parser.add_argument("--repetitions", "-r", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a turn")
    parser.add_argument("--no-p2p", action="store_true", help="through host memory")
    parser.add_argument("--hosts", action="store_true", help="sockets between machines")
    parser.add_argument("--no-compile", action="store_true", help="merge by plain operations")
    parser.add_argument("--port", type=int, default=29531)
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    try:
        import torch
        import torch.multiprocessing as multiprocessing
    except ImportError as error:
        sys.exit(f"bench_torch_sp: needs PyTorch ({error})")
    for name in args.shape.split(","):
        if name not in SHAPES:
            sys.exit(f"bench_torch_sp: shape '{name}': there are {', '.join(SHAPES)}")
    named = args.mode.split(",") if args.mode else []
    for mode in named:
        if mode not in MODES:
            sys.exit(f"bench_torch_sp: mode '{mode}': there are {', '.join(MODES)}")
    for name in filter(None, args.skip.split(",")):
        if not any(name.startswith(mode) for mode in MODES):
            sys.exit(f"bench_torch_sp: --skip '{name}': no variant of {', '.join(MODES)} is called so")
    machines = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", args.machines)
    if args.machines and not machines:
        sys.exit(f"bench_torch_sp: --machines '{args.machines}': needs NxM, as 2x4")
    N, M = map(int, machines.groups()) if machines else (0, 1)
    cpu = args.device == "cpu"
    ranks = args.ranks or N * M or (2 if cpu else torch.cuda.device_count())
    if ranks < 2 or not cpu and torch.cuda.device_count() < ranks:
        sys.exit(f"bench_torch_sp: {ranks} ranks, needs 2" if cpu else
                 f"bench_torch_sp: {torch.cuda.device_count()} GPUs, needs {max(ranks, 2)}")
    N = N or ranks
    if N * M != ranks:
        sys.exit(f"bench_torch_sp: --machines '{args.machines}': {N * M} ranks, there are {ranks}")
    same = {"usp": "ring", "tas": "ulysses"} if M == 1 else {}
    if N == 1:
        same = {"usp": "ulysses", "tas": "ring", "torus": "ulysses"}
    for mode in same:
        if mode in named:
            print(f"# {mode} is {same[mode]} on {N}x{M} machines", flush=True)
    args.mode = ",".join(named or (mode for mode in MODES if mode not in same))
    parts = {"ulysses": ranks, "ring": 1, "usp": M, "tas": N, "torus": ranks}  # of heads
    for name in args.shape.split(","):
        tokens, _, heads, _ = SHAPES[name]
        if tokens % ranks:
            sys.exit(f"bench_torch_sp: '{name}': {tokens} tokens, needs a multiple of {ranks}")
        for mode in args.mode.split(","):
            if heads % parts[mode]:
                sys.exit(f"bench_torch_sp: {mode} of '{name}': {heads} heads, needs a multiple of "
                         f"{parts[mode]}")
    args.no_compile |= cpu
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=worker, args=(rank, ranks, (N, M), args))
                 for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in processes))


if __name__ == "__main__":
    main()
