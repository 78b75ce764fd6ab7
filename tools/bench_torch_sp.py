#!/usr/bin/env python3
"""Sequence-parallel attention in PyTorch over NCCL, two-sided, a process for each GPU.

The shapes, dtype (bf16) and work are those of `braid bench attention --device cuda`: a joint prefix
is whole on every rank and so is its result. Attention is cuDNN's, or FlashAttention's where cuDNN
has no answer; of each mode the fastest variant counts:
  ulysses  q, k, v in one all_to_all (packed first) or in three
  ring     keys and values go round by batched send and receive under the attention of those that
           are there; parts merge by their log-sum-exp
  torus    torus attention of as many groups as ranks: queries, then keys and values by batched send
           and receive under the attention of what is there, results under the last stage
A rank is a machine here: topology-aware attention (ulysses across, ring inside) is then ulysses,
and USP (ring across) is the ring. Every mode's results are compared with the first one's.
Times are of steps that follow each other, the longest rank's, medians. NVLink multicast is off.
--no-p2p makes NCCL go through host memory, as between machines.
"""

import argparse
import json
import math
import os
import statistics
import sys

os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"

SHAPES = {  # tokens, joint prefix, heads, head dim
    "flux-3072": (192 * 192, 512, 24, 128),
    "flux-4096": (256 * 256, 512, 24, 128),
    "cogvideox-20s": (41 * 48 * 85, 226, 24, 64),
    "cogvideox-40s": (81 * 48 * 85, 226, 24, 64),
    "tiny": (256, 64, 4, 64),
}
MODES = ["ulysses", "ring", "torus"]


def worker(rank, ranks, args):
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(args.port)
    if args.no_p2p:
        os.environ["NCCL_P2P_DISABLE"] = "1"
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=ranks,
                            device_id=torch.device("cuda", rank))
    bf16 = torch.bfloat16

    def attention(q, k, v, lse):
        """[B, L, H, D] in and out; with `lse` also [B, L, H, 1] in f32."""
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        scale = 1 / math.sqrt(q.shape[-1])
        if not lse:
            with sdpa_kernel(backends):
                return F.scaled_dot_product_attention(q, k, v).transpose(1, 2), None
        if backends[0] == SDPBackend.CUDNN_ATTENTION:
            out = torch.ops.aten._scaled_dot_product_cudnn_attention(
                q, k, v, None, True, 0.0, False, False, scale=scale)
        else:
            out = torch.ops.aten._scaled_dot_product_flash_attention(
                q, k, v, 0.0, False, False, scale=scale)
        l = out[1]
        if l.dim() == 3:
            l = l.unsqueeze(-1)
        return out[0].transpose(1, 2), l.transpose(1, 2)

    @torch.compile(dynamic=False, disable=args.no_compile)
    def merge(o, l, o2, l2):
        """Two parts' results and log-sum-exps, in f32."""
        o, o2 = o.float(), o2.float()
        return o - torch.sigmoid(l2 - l) * (o - o2), torch.logaddexp(l, l2)

    def build(shape):
        L, text, H, D = shape
        own = L // ranks + (rank < L % ranks)
        assert L % ranks == 0 and H % ranks == 0, "even parts only"
        g = torch.Generator(device="cuda").manual_seed(rank)
        same = torch.Generator(device="cuda").manual_seed(1000)
        rand = lambda n, g: torch.randn(1, n, H, D, device="cuda", dtype=bf16, generator=g)
        x = {n: rand(own, g) for n in "qkv"}
        j = {n: rand(text, same) for n in "qkv"}
        part = H // ranks
        heads = slice(rank * part, (rank + 1) * part)
        jr = slice(text * rank // ranks, text * (rank + 1) // ranks)

        def gather_heads(mine):  # the prefix' result [1, text, part, D] of all heads
            out = torch.empty(ranks, *mine.shape, device="cuda", dtype=bf16)
            dist.all_gather_into_tensor(out, mine.contiguous())
            return out.permute(1, 2, 0, 3, 4).reshape(1, text, H, D)

        def scatter_o(o):  # [1, L, part, D] to own rows of all heads
            out = torch.empty(ranks, own, part, D, device="cuda", dtype=bf16)
            dist.all_to_all_single(out, o.reshape(ranks, own, part, D).contiguous())
            return out.permute(1, 0, 2, 3).reshape(1, own, H, D)

        def attend_heads(q, k, v):
            o, _ = attention(torch.cat([j["q"][:, :, heads], q], 1),
                             torch.cat([j["k"][:, :, heads], k], 1),
                             torch.cat([j["v"][:, :, heads], v], 1), False)
            return gather_heads(o[:, :text]), scatter_o(o[:, text:])

        def ulysses_packed():
            mine = torch.stack([x[n][0].view(own, ranks, part, D) for n in "qkv"])
            mine = mine.permute(2, 0, 1, 3, 4).contiguous()  # [ranks, 3, own, part, D]
            got = torch.empty_like(mine)
            dist.all_to_all_single(got, mine)
            q, k, v = (got[:, i].reshape(1, L, part, D) for i in range(3))
            return attend_heads(q, k, v)

        def ulysses_three():
            got = []
            for n in "qkv":
                mine = x[n][0].view(own, ranks, part, D).transpose(0, 1).contiguous()
                out = torch.empty_like(mine)
                dist.all_to_all_single(out, mine)
                got.append(out.reshape(1, L, part, D))
            return attend_heads(*got)

        def ulysses_alone():
            q, k, v = alone
            return attention(q, k, v, False)

        alone = [torch.randn(1, text + L, part, D, device="cuda", dtype=bf16) for _ in range(3)]

        kv_buffers = [torch.empty(2, 1, own, H, D, device="cuda", dtype=bf16) for _ in range(2)]

        def ring(communicate=True):
            q = torch.cat([j["q"][:, jr], x["q"]], 1)
            k, v = x["k"], x["v"]
            o = l = None
            for step in range(ranks):
                works = []
                if communicate and step + 1 < ranks:
                    into = kv_buffers[step % 2]
                    ops = []
                    for n, t in enumerate((k, v)):
                        ops.append(dist.P2POp(dist.isend, t, (rank + 1) % ranks))
                        ops.append(dist.P2POp(dist.irecv, into[n], (rank - 1) % ranks))
                    works = dist.batch_isend_irecv(ops)
                ka, va = (torch.cat([j["k"], k], 1), torch.cat([j["v"], v], 1)) if step == 0 else (k, v)
                part_o, part_l = attention(q, ka, va, True)
                o, l = (part_o, part_l) if o is None else merge(o, l, part_o, part_l)
                for work in works:
                    work.wait()
                if step + 1 < ranks:
                    k, v = kv_buffers[step % 2]
            o = o.to(bf16)
            rows = jr.stop - jr.start
            joint = torch.empty(text, H, D, device="cuda", dtype=bf16)
            if communicate and text % ranks == 0:
                dist.all_gather_into_tensor(joint, o[0, :rows].contiguous())
            return joint[None], o[:, rows:]

        queries = [torch.empty(1, own, part, D, device="cuda", dtype=bf16) for _ in range(1, ranks)]
        keys = [[torch.empty_like(b) for b in queries] for _ in "kv"]

        def join(tensors):
            return tensors[0] if len(tensors) == 1 else torch.cat(tensors, 1)

        def torus(communicate=True):
            def exchange(names, buffers, n):  # of class n + 1: what rank - n - 1 has of these heads
                to, source = (rank + n + 1) % ranks, (rank - n - 1) % ranks
                ops = []
                for name, into in zip(names, buffers):
                    mine = x[name][:, :, to * part:(to + 1) * part].contiguous()
                    ops += [dist.P2POp(dist.isend, mine, to), dist.P2POp(dist.irecv, into, source)]
                return dist.batch_isend_irecv(ops) if communicate else []

            def wait(works):
                for work in works:
                    work.wait()

            jq, jk, jv = (j[n][:, :, heads] for n in "qkv")
            q, k, v = (x[n][:, :, heads] for n in "qkv")
            later = range(ranks - 1)
            q_works = [exchange("q", [queries[n]], n) for n in later]
            kv_works = [exchange("kv", [keys[0][n], keys[1][n]], n) for n in later]
            k0, v0 = torch.cat([jk, k], 1), torch.cat([jv, v], 1)
            o, l = attention(torch.cat([jq, q], 1), k0, v0, True)
            own_o, own_l = o[:, text:], l[:, text:]
            states = [(o[:, :text], l[:, :text])]  # the prefix, then the classes
            for n in later:
                wait(q_works[n])
                states.append(attention(queries[n], k0, v0, True))
            o, l = (torch.cat([state[i] for state in states], 1) for i in (0, 1))
            q_later = torch.cat([jq] + queries, 1)
            for n in later:
                wait(kv_works[n])
                o, l = merge(o, l, *attention(q_later, keys[0][n], keys[1][n], True))
            o = o.to(bf16)
            got = torch.empty(ranks, own, part, D, device="cuda", dtype=bf16)
            works = []
            for n in later:  # to whom these queries belong
                ops = [dist.P2POp(dist.isend, o[0, text + n * own:text + (n + 1) * own],
                                  (rank - n - 1) % ranks),
                       dist.P2POp(dist.irecv, got[(rank + n + 1) % ranks], (rank + n + 1) % ranks)]
                works += dist.batch_isend_irecv(ops) if communicate else []
            own_o, _ = merge(own_o, own_l, *attention(q, join(keys[0]), join(keys[1]), True))
            got[rank] = own_o[0].to(bf16)
            wait(works)
            joint = gather_heads(o[:, :text]) if communicate else o[:, :text]
            return joint, got.permute(1, 0, 2, 3).reshape(1, own, H, D)

        return {"ulysses packed": ulysses_packed, "ulysses three": ulysses_three, "ring": ring,
                "torus": torus}, {"ulysses": ulysses_alone, "ring": lambda: ring(False),
                                  "torus": lambda: torus(False)}

    def link_speed():
        """Bytes/s each way of blocks sent and received at once, with the right neighbour."""
        block = torch.empty(96 << 20, device="cuda", dtype=torch.uint8)
        into = torch.empty_like(block)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for turn in range(2):
            begin.record()
            for _ in range(3):
                for work in dist.batch_isend_irecv(
                        [dist.P2POp(dist.isend, block, (rank + 1) % ranks),
                         dist.P2POp(dist.irecv, into, (rank - 1) % ranks)]):
                    work.wait()
            end.record()
            end.synchronize()
        return 3 * block.numel() / begin.elapsed_time(end) * 1e3

    def timed(run, seconds):
        run()
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        n = torch.tensor([max(1, min(20, int(seconds / (begin.elapsed_time(end) / 1e3))))],
                         device="cuda")
        dist.broadcast(n, 0)
        times = []
        for _ in range(args.repetitions):
            dist.barrier()
            if int(n) > 1:
                run()
            begin.record()
            for _ in range(int(n)):
                run()
            end.record()
            end.synchronize()
            longest = torch.tensor([begin.elapsed_time(end) / int(n)], device="cuda")
            dist.all_reduce(longest, op=dist.ReduceOp.MAX)
            times.append(float(longest))
        return statistics.median(times)

    # Whether cuDNN takes the call at all.
    backends = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]
    try:
        t = torch.randn(1, 64, 2, 64, device="cuda", dtype=bf16)
        attention(t, t, t, True)
    except RuntimeError as error:
        print(f"# cuDNN: {str(error).splitlines()[0]}; FlashAttention instead", file=sys.stderr)
        backends = [SDPBackend.FLASH_ATTENTION]
    if rank == 0:
        print(f"# torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, NCCL "
              f"{'.'.join(map(str, torch.cuda.nccl.version()))}"
              f"{', no peer access' if args.no_p2p else ''}, {ranks} GPUs", flush=True)
    speed = link_speed()
    if rank == 0:
        print(f"# send and receive at once: {speed / 1e9:.1f} GB/s each way")
        print("| shape | mode | time ms | attention alone ms | exposed ms | variant | difference |")
        print("|---|---|---:|---:|---:|---|---:|", flush=True)
    record = {"link": speed}
    for name in args.shape.split(","):
        runs, alone = build(SHAPES[name])
        first = None
        for mode in args.mode.split(","):
            base = timed(alone[mode], args.seconds)
            found, differs = {}, 0
            for variant, run in runs.items():
                if not variant.startswith(mode) or variant in args.skip.split(","):
                    continue
                found[variant] = timed(run, args.seconds)
                got = run()
                first = first or [t.clone() for t in got]
                differs = max([differs] + [float((a.float() - b.float()).abs().max())
                                           for a, b in zip(got, first)])
                del got
            if not found:
                continue
            best = min(found, key=found.get)
            record[f"{name} {mode}"] = {"ms": found, "alone": base, "difference": differs}
            if rank == 0:
                print(f"| {name} | {mode} | {found[best]:.3f} | {base:.3f} | "
                      f"{found[best] - base:.3f} | {best} | {differs:.2g} |", flush=True)
        del runs, alone, first
        torch.cuda.empty_cache()
    if rank == 0 and args.json:
        with open(args.json, "w") as out:
            json.dump(record, out, indent=1)
    dist.barrier()
    torch.cuda.synchronize()
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=0, help="GPUs; 0: all")
    parser.add_argument("--shape", default="flux-3072", help="comma-separated: " + ", ".join(SHAPES))
    parser.add_argument("--mode", default=",".join(MODES), help="comma-separated")
    parser.add_argument("--skip", default="", help="variants to leave out, comma-separated")
    parser.add_argument("--repetitions", "-r", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a turn")
    parser.add_argument("--no-p2p", action="store_true", help="through host memory")
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
    for mode in args.mode.split(","):
        if mode not in MODES:
            sys.exit(f"bench_torch_sp: mode '{mode}': there are {', '.join(MODES)}")
    for name in filter(None, args.skip.split(",")):
        if not any(name.startswith(mode) for mode in MODES):
            sys.exit(f"bench_torch_sp: --skip '{name}': no variant of {', '.join(MODES)} is called so")
    ranks = args.ranks or torch.cuda.device_count()
    if ranks < 2 or torch.cuda.device_count() < ranks:
        sys.exit(f"bench_torch_sp: {torch.cuda.device_count()} GPUs, needs {max(ranks, 2)}")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=worker, args=(rank, ranks, args)) for rank in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in processes))


if __name__ == "__main__":
    main()
