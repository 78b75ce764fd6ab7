#!/usr/bin/env python3
"""Segment attention against cuDNN and FlashAttention through PyTorch, in one process, in turns.

    python3 tools/bench_attention_peer.py --library build/release/bench/libbench_cuda_attention_c.so

Prints TFLOP/s (causal: half of the products counted) and ratios; medians over rounds in which
every kernel takes its turn on the same tensors. Short calls are measured as CUDA graphs of 20.
"""
import argparse
import ctypes
import json
import math
import random
import statistics
import sys

try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError as error:
    sys.exit(f"bench_attention_peer: needs the packages of tools/requirements.txt ({error})")


class Problem(ctypes.Structure):
    _fields_ = (
        [(n, ctypes.c_void_p) for n in "q k v o lse state_o state_l state_m workspace".split()]
        + [(n, ctypes.c_int32) for n in
           "batch lq lk hq hkv dqk dv bf16 causal state_bf16 q_segments kv_segments calls gap "
           "candidate".split()]
        + [("scale", ctypes.c_float), ("arrived", ctypes.c_void_p), ("sums", ctypes.c_void_p),
           ("sums_bytes", ctypes.c_int64)])


class Braid:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.workspace = torch.zeros(64, dtype=torch.int32, device="cuda")
        self.arrived = torch.zeros(3, dtype=torch.int32, device="cuda")
        self.sums = torch.empty(1200 << 20, dtype=torch.uint8, device="cuda")

    def __call__(self, q, k, v, causal, o, state=None, q_segments=1, kv_segments=1, calls=1,
                 candidate=-1, lse=None, gap=0, arriving=False):
        b, lq, hq, d = q.shape
        p = Problem(q=q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(), o=o.data_ptr(),
                    lse=lse.data_ptr() if lse is not None else None,
                    state_o=state[0].data_ptr() if state else None,
                    state_l=state[1].data_ptr() if state else None,
                    state_m=state[2].data_ptr() if state else None,
                    workspace=self.workspace.data_ptr(), batch=b, lq=lq, lk=k.shape[1], hq=hq,
                    hkv=k.shape[2], dqk=d, dv=v.shape[3], bf16=int(q.dtype == torch.bfloat16),
                    causal=int(causal), q_segments=q_segments, kv_segments=kv_segments,
                    calls=calls, gap=gap, candidate=candidate, scale=1 / math.sqrt(d),
                    arrived=self.arrived.data_ptr() if arriving else None,
                    sums=self.sums.data_ptr(), sums_bytes=self.sums.numel(),
                    state_bf16=int(bool(state) and state[0].dtype == torch.bfloat16))
        name = ctypes.create_string_buffer(128)
        message = ctypes.create_string_buffer(512)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if self.lib.braid_attention(ctypes.byref(p), stream, name, 128, message, 512):
            raise RuntimeError(message.value.decode())
        return name.value.decode()


class Chain:
    """Four calls: `first` launches, the others go into a stream of their own and tell it to go on
    (or nobody). It ends after what it is told, so only who captures has to join."""

    def __init__(self, braid, first, told=True):
        self.braid = braid
        self.first = first
        self.arrived = braid.arrived if told else torch.zeros_like(braid.arrived)
        self.stream = torch.cuda.Stream()

    def __call__(self):
        self.stream.wait_stream(torch.cuda.current_stream())  # the chain before has ended
        self.first()
        for stage in range(1, 4):
            message = ctypes.create_string_buffer(512)
            if self.braid.lib.braid_attention_continue(
                    ctypes.c_void_p(self.arrived.data_ptr()), stage,
                    ctypes.c_void_p(self.stream.cuda_stream), message, 512):
                raise RuntimeError(message.value.decode())

    def join(self):
        torch.cuda.current_stream().wait_stream(self.stream)


LINK_BYTES_PER_US = 4e5  # of an NVLink pair, one way
HOST_BYTES_PER_US = 5.5e4


class Arrival:
    """Tells a call of 4 stages that its keys are there. Time passes by copies from the host, since
    the call leaves no SM to others."""

    def __init__(self, arrived):
        self.arrived = arrived[:1]
        self.nobody = torch.zeros_like(self.arrived)
        self.stage = torch.arange(4, dtype=torch.int32).pin_memory()
        self.from_host = torch.empty(64 << 20, dtype=torch.uint8).pin_memory()
        self.to = self.from_host.cuda()
        self.stream = torch.cuda.Stream()

    def at_once(self, run, told=True):
        (self.arrived if told else self.nobody).copy_(self.stage[3:], non_blocking=True)
        return run()

    def by_and_by(self, run, us, told=True):
        size = int(us * HOST_BYTES_PER_US)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for stage in range(1, 4):
                self.to[:size].copy_(self.from_host[:size], non_blocking=True)
                to = self.arrived if told else self.nobody
                to.copy_(self.stage[stage:stage + 1], non_blocking=True)
        run()
        torch.cuda.current_stream().wait_stream(self.stream)


def sdpa(backend, q, k, v, causal):
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=causal,
            enable_gqa=q.shape[2] != k.shape[2])


def capture(run, times):
    """A graph of `times` runs: what short kernels cost without the launching."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            run()
        if isinstance(run, Chain):
            run.join()
    return graph.replay


def seconds(run, inner):
    begin = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(inner):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / inner


def ratios(pairs, rounds, inner):
    """How much faster the first of each pair is than the second, the median over rounds: neighbours
    in time have the same clock, and take turns to be first."""
    out = {}
    for name, (run, base) in pairs.items():
        found = []
        try:
            for r in range(rounds + 1):
                order = (base, run) if r % 2 else (run, base)
                times = [seconds(f, inner) for f in order]
                found.append(times[1] / times[0] if r % 2 == 0 else times[0] / times[1])
        except RuntimeError as e:
            print(f"#   {name}: {str(e).splitlines()[0]}", file=sys.stderr)
            continue
        out[name] = statistics.median(found[1:])
    return out


def measure(runs, rounds, inner, per_graph):
    """Median seconds of each of `runs`, in turns; a run that raises is left out."""
    times = {name: [] for name in runs}
    dead = {}
    if per_graph > 1:
        for name in runs:
            try:
                runs[name] = capture(runs[name], per_graph)
            except RuntimeError as e:
                dead[name] = str(e).splitlines()[0]
        inner = max(1, inner // per_graph)
    names = list(runs)
    shuffle = random.Random(1).shuffle
    for r in range(rounds + 1):
        # The power that one draws is taken from the next one's clock: turns are in random order, and
        # every other time in the reverse of the order before.
        names.reverse() if r % 2 else shuffle(names)
        for name in names:
            run = runs[name]
            if name in dead:
                continue
            try:
                time = seconds(run, inner) / per_graph
                if r > 0:
                    times[name].append(time)
            except RuntimeError as e:
                dead[name] = str(e).splitlines()[0]
    for name, why in dead.items():
        print(f"#   {name}: {why}", file=sys.stderr)
    return {n: statistics.median(t) for n, t in times.items() if t}


def errors(braid, shape, causal, inputs, seeds=8):
    """Against f64, on up to 512 rows of one head: the root of the mean square, and the largest, over
    several inputs (of the largest the mean: one draw's is luck)."""
    drawn = [drawn_errors(braid, shape, causal, inputs, seed) for seed in range(1, seeds + 1)]
    return {name: (math.sqrt(statistics.mean(d[name][0] for d in drawn)),
                   statistics.mean(d[name][1] for d in drawn)) for name in drawn[0]}


def drawn_errors(braid, shape, causal, inputs, seed):
    b, l, hq, hkv, d = shape[:5]
    q, k, v = make(shape, seed=seed)
    if inputs == "large logits":
        q, k = q * 8, k * 8
    if inputs == "dominant key":
        k[:, l // 3] = 4 * q[:, 0, :hkv]
    o = torch.empty_like(q)
    braid(q, k, v, causal, o)
    rows = slice(0, l, max(1, l // 512))
    s = q[0, rows, 0].double() @ k[0, :, 0].double().T / math.sqrt(d)
    if causal:
        index = torch.arange(l, device="cuda")
        s.masked_fill_(index[None, :] > index[rows][:, None], -math.inf)
    want = s.softmax(-1) @ v[0, :, 0].double()
    out = {}
    for name, got in [("braid", o), ("cudnn", sdpa(SDPBackend.CUDNN_ATTENTION, q, k, v, causal)
                                     .transpose(1, 2))]:
        e = (got[0, rows, 0].double() - want).abs()
        out[name] = (e.square().mean().item(), e.max().item())
    return out


def make(shape, spare=0, seed=1):
    b, l, hq, hkv, d = shape[:5]
    g = torch.Generator(device="cuda").manual_seed(seed)
    rand = lambda h, d: torch.randn(b, l + spare, h, d, device="cuda", dtype=torch.bfloat16,
                                    generator=g)
    return rand(hq, d), rand(hkv, d), rand(hkv, shape[-1])


GAP = 64  # tokens of memory between segments, so that none is the other's continuation
SHAPES = {  # name: (B, L, Hq, Hkv, D[, Dv]), causal
    **{f"full D128 24h {l // 1024}K": ((1, l, 24, 24, 128), False) for l in (4096, 16384, 32768, 65536)},
    **{f"causal D128 24h {l // 1024}K": ((1, l, 24, 24, 128), True) for l in (4096, 16384, 32768, 65536)},
    **{f"full D64 24h {l // 1024}K": ((1, l, 24, 24, 64), False) for l in (4096, 16384, 32768, 65536)},
    **{f"causal D64 24h {l // 1024}K": ((1, l, 24, 24, 64), True) for l in (4096, 16384)},
    **{f"full D128 64/8h {l // 1024}K": ((1, l, 64, 8, 128), False) for l in (4096, 16384, 32768)},
    **{f"causal D128 64/8h {l // 1024}K": ((1, l, 64, 8, 128), True) for l in (4096, 16384)},
    **{f"full D96 24h {l // 1024}K": ((1, l, 24, 24, 96), False) for l in (16384,)},
    **{f"full D256 12h {l // 1024}K": ((1, l, 12, 12, 256), False) for l in (16384,)},
    "causal D256 12h 16K": ((1, 16384, 12, 12, 256), True),
    "causal D96 24h 16K": ((1, 16384, 24, 24, 96), True),
    "full D192/128 24h 16K": ((1, 16384, 24, 24, 192, 128), False),
    "causal D192/128 24h 16K": ((1, 16384, 24, 24, 192, 128), True),
    "full D192/128 24h 4K": ((1, 4096, 24, 24, 192, 128), False),
    "full D64 9/3h 512": ((1, 512, 9, 3, 64), False),
    "causal D64 9/3h 512": ((1, 512, 9, 3, 64), True),
    "full D128 24h 512": ((1, 512, 24, 24, 128), False),
    "causal D128 32/8h 1000": ((1, 1000, 32, 8, 128), True),
    "causal D128 32/8h 2K": ((1, 2048, 32, 8, 128), True),
    "full D128 9/3h 512": ((1, 512, 9, 3, 128), False),
    "full D128 9h 777": ((1, 777, 9, 9, 128), False),
    "causal D64 9h 1333": ((1, 1333, 9, 9, 64), True),
    "full D96 9h 300": ((1, 300, 9, 9, 96), False),
    "full D256 5h 700": ((1, 700, 5, 5, 256), False),
    "full D64 24h 130": ((4, 130, 24, 24, 64), False),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    parser.add_argument("--only", default="", help="comma-separated parts of shape names")
    parser.add_argument("--cuts", default="", help="of --segments: comma-separated parts of names")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ms", type=float, default=60, help="time of a turn")
    parser.add_argument("--all", action="store_true", help="every candidate kernel, not the choice")
    parser.add_argument("--generic", action="store_true", help="the generic kernel takes turns, too")
    parser.add_argument("--flash", action="store_true", help="FlashAttention-2 takes turns, too")
    parser.add_argument("--segments", action="store_true", help="cut the calls, too")
    parser.add_argument("--errors", action="store_true")
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    braid = Braid(args.library)
    print(f"# {torch.cuda.get_device_name()}, torch {torch.__version__}, "
          f"cuDNN {torch.backends.cudnn.version()}")
    record = {}
    if args.errors:
        for inputs in "random", "large logits", "dominant key":
            for shape, causal in [((1, 4096, 2, 2, 128), False), ((1, 4096, 2, 2, 64), False),
                                  ((1, 4096, 2, 2, 128), True), ((1, 2048, 2, 2, 256), False),
                                  ((1, 2048, 2, 2, 96), False)]:
                found = errors(braid, shape, causal, inputs)
                print(f"# {inputs}, D{shape[4]} {'causal' if causal else 'full'} L {shape[1]}, "
                      "error against f64, rms and largest: "
                      + ", ".join(f"{n} {rms:.3e} {worst:.3e}" for n, (rms, worst) in found.items()))
    for label, (shape, causal) in SHAPES.items():
        if args.only and not any(part in label for part in args.only.split(",")):
            continue
        b, l, hq, hkv, d = shape[:5]
        wide = make(shape, 7 * GAP if args.segments else 0)
        q, k, v = (x[:, :l].contiguous() for x in wide)
        o = torch.empty(b, l + 7 * GAP, hq, v.shape[3], device="cuda", dtype=q.dtype)
        flops = 2 * b * hq * l * l * (d + v.shape[3]) * (0.5 if causal else 1)
        runs = {"cudnn": lambda: sdpa(SDPBackend.CUDNN_ATTENTION, q, k, v, causal),
                "braid": lambda: braid(q, k, v, causal, o)}
        if args.flash:
            runs["fa2"] = lambda: sdpa(SDPBackend.FLASH_ATTENTION, q, k, v, causal)
        if args.all:
            candidate = 0
            while True:
                try:
                    name = braid(q, k, v, causal, o, candidate=candidate)
                except RuntimeError:
                    break
                runs[name] = lambda c=candidate: braid(q, k, v, causal, o, candidate=c)
                candidate += 1
        chosen = braid(q, k, v, causal, o)
        if args.generic:
            runs[braid(q, k, v, causal, o, candidate=-2)] = lambda: braid(q, k, v, causal, o,
                                                                          candidate=-2)
        if args.segments:
            stats = torch.empty(2, b, hq, l, device="cuda")
            state = (torch.empty(b, l, hq, v.shape[3], device="cuda"), stats[0], stats[1])
            half = (state[0].bfloat16(), stats[0], stats[1])

            def segments(n, gap=GAP):
                return braid(wide[0][:, :l], wide[1][:, :l], wide[2], causal, o, q_segments=n,
                             kv_segments=n, gap=gap)
            one = lambda: segments(1)
            cuts = {"1x1 again": (one, one), "2x2": (lambda: segments(2), one),
                    "8x8": (lambda: segments(8), one),
                    "8x8 adjacent": (lambda: segments(8, gap=0), one)}
            print("# " + "; ".join(f"{n}x{n} {segments(n)}" for n in (1, 2, 8)) + "; calls "
                  + braid(q, k, v, causal, o, state, kv_segments=4, calls=4))
            if not causal:  # what is left of a chain's cost without its state
                quarters = [slice(i * l // 4, (i + 1) * l // 4) for i in range(4)]
                cuts["4 plain calls"] = (lambda: [braid(q, k[:, s], v[:, s], causal, o)
                                                  for s in quarters], one)
                cuts["4 plain calls, cudnn"] = (
                    lambda: [sdpa(SDPBackend.CUDNN_ATTENTION, q, k[:, s], v[:, s], causal)
                             for s in quarters], runs["cudnn"])
            for n, s in ("4 calls", state), ("4 calls, bf16", half):
                cuts[n] = (lambda s=s: braid(q, k, v, causal, o, s, kv_segments=4, calls=4), one)
            arrival = Arrival(braid.arrived)
            stage_us = 2 * b * l / 4 * hkv * (d + v.shape[3]) / LINK_BYTES_PER_US

            def stages():
                return braid(q, k, v, causal, o, kv_segments=4, arriving=True)
            chain = Chain(braid, stages)
            cuts["4 calls, in one launch"] = (chain, one)
            cuts["4 calls, in one launch, beside words"] = (chain, Chain(braid, one, told=False))
            cuts["4 stages, there"] = (lambda: arrival.at_once(stages),
                                       lambda: arrival.at_once(one, told=False))
            cuts["4 stages, arriving"] = (
                lambda: arrival.by_and_by(stages, stage_us),
                lambda: arrival.by_and_by(one, stage_us, told=False))
            cuts = {n: pair for n, pair in cuts.items()
                    if not args.cuts or any(part in n for part in args.cuts.split(","))}
        inner = max(1, round(args.ms * 1e-3 / (flops / 550e12 + 20e-6)))
        t = measure(runs, args.rounds, inner, 20 if flops < 2e11 else 1)
        base = t.get("cudnn")
        record[label] = {n: flops / s / 1e12 for n, s in t.items()}
        cells = "  ".join(f"{n} {flops / s / 1e12:.0f}" + (f" ({base / s:.3f})" if base else "")
                          for n, s in t.items())
        print(f"{label:24s} {cells}   [{chosen}]", flush=True)
        if args.segments and flops >= 5e10:  # else launching is what it would measure
            found = {}
            if flops < 2e11:  # four launches take the host as long
                short = {n: pair for n, pair in cuts.items() if "stages" not in n}
                graphs = {run: capture(run, 20) for pair in short.values() for run in pair}
                found = ratios({n: (graphs[run], graphs[base]) for n, (run, base) in short.items()},
                               2 * args.rounds, max(1, inner // 20))
                cuts = {n: pair for n, pair in cuts.items() if n not in short}
            found |= ratios(cuts, 2 * args.rounds, inner)
            record[label] |= {n: r - 1 for n, r in found.items()}
            print(" " * 24 + "  ".join(f"{n} {100 * (r - 1):+.1f}%" for n, r in found.items()),
                  flush=True)
        del q, k, v, o
    if args.json:
        with open(args.json, "w") as f:
            json.dump(record, f, indent=1)


if __name__ == "__main__":
    main()
