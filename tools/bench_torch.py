#!/usr/bin/env python3
"""The peer on a GPU: a Llama in plain PyTorch with random bf16 weights, decode and prefill.

    python3 tools/bench_torch.py --config configs/llama-2-7b.json --json torch.json

Decode is the whole step in one CUDA graph. What stands before and after attention is compiled by
torch.compile once for a batch size and reused for all layers; the residual addition of a layer is
left to the next one, so that nothing is lost to the cut. Attention is called directly (it is an
opaque kernel to the compiler too) on exactly the live keys, with whichever backend of
scaled_dot_product_attention is fastest for the shape. Times are medians over replays.

    python3 tools/bench_torch.py --check     # small, on the CPU: decode against prefill
"""
import argparse
import json
import math
import statistics
import sys
import time
from dataclasses import dataclass

try:
    import torch
    import torch._inductor.config
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError as error:
    sys.exit(f"bench_torch: needs the packages of tools/requirements.txt ({error})")

BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}


@dataclass(frozen=True)
class Shape:
    C: int
    F: int
    Hq: int
    Hkv: int
    D: int
    V: int
    layers: int
    eps: float
    theta: float
    qk_norm: bool

    @classmethod
    def read(cls, path, layers=None):
        with open(path) as f:
            c = json.load(f)
        heads = c["num_attention_heads"]
        return cls(C=c["hidden_size"], F=c["intermediate_size"], Hq=heads,
                   Hkv=c.get("num_key_value_heads", heads),
                   D=c.get("head_dim") or c["hidden_size"] // heads, V=c["vocab_size"],
                   layers=layers or c["num_hidden_layers"], eps=c["rms_norm_eps"],
                   theta=c["rope_theta"], qk_norm="Qwen3" in c["architectures"][0])

    def weight_bytes(self):
        """Bytes that a decode step reads: all weights but the embedding."""
        layer = self.C * (self.Hq + 2 * self.Hkv) * self.D + self.Hq * self.D * self.C \
            + 3 * self.C * self.F
        return 2 * (self.layers * layer + self.V * self.C)

    def kv_bytes(self, batch, context):
        return 2 * 2 * self.layers * batch * context * self.Hkv * self.D

    def linear_flops(self, tokens):
        layer = self.C * (self.Hq + 2 * self.Hkv) * self.D + self.Hq * self.D * self.C \
            + 3 * self.C * self.F
        return 2 * tokens * self.layers * layer


class Layer:
    """Weights of one layer, [out, in]."""

    def __init__(self, s, rand, device, dtype):
        self.norm1 = torch.ones(s.C, device=device, dtype=dtype)
        self.norm2 = torch.ones(s.C, device=device, dtype=dtype)
        self.q_norm = torch.ones(s.D, device=device, dtype=dtype)
        self.k_norm = torch.ones(s.D, device=device, dtype=dtype)
        self.qkv = rand((s.Hq + 2 * s.Hkv) * s.D, s.C)
        self.o = rand(s.C, s.Hq * s.D)
        self.gate_up = rand(2 * s.F, s.C)
        self.down = rand(s.C, s.F)


def rms_norm(x, weight, eps):
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def rotate(x, cos, sin):
    """x [B, H, T, D]; cos and sin [T, D / 2], of the pairs (i, i + D / 2)."""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Peer:
    def __init__(self, shape, device, dtype, seed=0):
        self.s = shape
        self.device = device
        self.dtype = dtype
        g = torch.Generator(device=device).manual_seed(seed)

        def rand(out, width):
            w = torch.empty(out, width, device=device, dtype=dtype)
            return w.normal_(0, 1 / math.sqrt(width), generator=g)

        self.embedding = rand(shape.V, shape.C)
        self.head = rand(shape.V, shape.C)
        self.norm = torch.ones(shape.C, device=device, dtype=dtype)
        self.layers = [Layer(shape, rand, device, dtype) for _ in range(shape.layers)]

    def factors(self, positions):
        s = self.s
        powers = torch.arange(0, s.D, 2, device=self.device, dtype=torch.float64) / s.D
        angle = positions.double()[:, None] * s.theta ** -powers
        return angle.cos().float(), angle.sin().float()

    # x [B, T, C] is the residual stream, `pending` what is still to be added to it.
    def before(self, x, pending, cos, sin, norm1, q_norm, k_norm, qkv):
        s = self.s
        b, t, _ = x.shape
        x = x + pending
        y = F.linear(rms_norm(x, norm1, s.eps), qkv)
        q, k, v = y.view(b, t, -1, s.D).transpose(1, 2).split((s.Hq, s.Hkv, s.Hkv), 1)
        if s.qk_norm:
            q, k = rms_norm(q, q_norm, s.eps), rms_norm(k, k_norm, s.eps)
        return x, rotate(q, cos, sin), rotate(k, cos, sin), v

    def before_cached(self, x, pending, cos, sin, norm1, q_norm, k_norm, qkv, keys, values, at):
        x, q, k, v = self.before(x, pending, cos, sin, norm1, q_norm, k_norm, qkv)
        keys.index_copy_(2, at, k)
        values.index_copy_(2, at, v)
        return x, q

    def after(self, x, attended, norm2, o, gate_up, down):
        b, h, t, d = attended.shape
        x = x + F.linear(attended.transpose(1, 2).reshape(b, t, h * d), o)
        gate, up = F.linear(rms_norm(x, norm2, self.s.eps), gate_up).chunk(2, -1)
        return x, F.linear(F.silu(gate) * up, down)

    def last(self, x, pending):
        return F.linear(rms_norm(x + pending, self.norm, self.s.eps), self.head)

    def attention(self, q, k, v, causal, backend):
        gqa = self.s.Hq != self.s.Hkv
        with sdpa_kernel(BACKENDS[backend]):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=gqa)

    def prefill(self, ids, backend, parts):
        """ids [B, T] -> logits of the last token [B, 1, V]."""
        before, after, last = parts
        cos, sin = self.factors(torch.arange(ids.shape[1], device=self.device))
        x = F.embedding(ids, self.embedding)
        pending = torch.zeros_like(x)
        for l in self.layers:
            x, q, k, v = before(x, pending, cos, sin, l.norm1, l.q_norm, l.k_norm, l.qkv)
            x, pending = after(x, self.attention(q, k, v, True, backend), l.norm2, l.o, l.gate_up,
                               l.down)
        return last(x[:, -1:], pending[:, -1:])

    def decode(self, ids, cache, at, factors, live, backend, parts):
        """ids [B, 1], written at index `at` [1] of the cache; attends to `live` keys."""
        before, after, last = parts
        x = F.embedding(ids, self.embedding)
        pending = torch.zeros_like(x)
        for l, (keys, values) in zip(self.layers, cache):
            x, q = before(x, pending, *factors, l.norm1, l.q_norm, l.k_norm, l.qkv, keys, values,
                          at)
            attended = self.attention(q, keys[:, :, :live], values[:, :, :live], False, backend)
            x, pending = after(x, attended, l.norm2, l.o, l.gate_up, l.down)
        return last(x, pending)

    def make_cache(self, batch, capacity):
        s = self.s
        make = lambda: torch.empty(batch, s.Hkv, capacity, s.D, device=self.device,
                                   dtype=self.dtype).normal_()
        return [(make(), make()) for _ in range(s.layers)]


def median_ms(run, seconds, least=5, most=200):
    """Median of single runs between events, over about `seconds`."""
    run()
    torch.cuda.synchronize()
    times = []
    end_at = time.monotonic() + seconds
    while len(times) < least or (time.monotonic() < end_at and len(times) < most):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def captured(run):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def best_backend(peer, q, k, v, causal):
    """The fastest backend for the shape, and all of their times in ms."""
    times = {}
    for name in BACKENDS:
        if name == "math":
            continue
        try:
            run = captured(lambda: [peer.attention(q, k, v, causal, name) for _ in range(8)])
            times[name] = median_ms(run, 0.1) / 8
        except RuntimeError as e:
            print(f"#   {name}: {str(e).splitlines()[0]}", file=sys.stderr)
    return (min(times, key=times.get) if times else "math"), times


def bench_decode(peer, batch, contexts, mode, results):
    s = peer.s
    torch.compiler.reset()
    began = time.monotonic()
    compiled = [torch.compile(f, mode=mode) for f in (peer.before_cached, peer.after, peer.last)]
    for context in contexts:
        need = s.kv_bytes(batch, context) * 1.05 + (2 << 30)
        free, _ = torch.cuda.mem_get_info()
        reserved = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        if need > free + reserved:
            print(f"| decode | {batch} | {context} | does not fit | | | |", flush=True)
            continue
        cache = peer.make_cache(batch, context)
        at = torch.tensor([context - 1], device=peer.device)
        ids = torch.randint(s.V, (batch, 1), device=peer.device)
        factors = peer.factors(at)
        q = torch.randn(batch, s.Hq, 1, s.D, device=peer.device, dtype=peer.dtype)
        backend, attention = best_backend(peer, q, *cache[0], False)
        step = captured(lambda: peer.decode(ids, cache, at, factors, context, backend, compiled))
        if context == contexts[0]:
            compile_s = time.monotonic() - began
        ms = median_ms(step, 1.0)
        total = s.weight_bytes() + s.kv_bytes(batch, context)
        print(f"| decode | {batch} | {context} | {ms:.3f} | {total / ms / 1e9:.2f} | {backend} "
              f"| {compile_s:.0f} |", flush=True)
        results.append({"what": "decode", "batch": batch, "context": context, "ms": ms,
                        "tb_per_s": total / ms / 1e9, "backend": backend,
                        "attention_ms": attention, "mode": mode, "compile_s": compile_s})
        del step, cache
        torch.cuda.empty_cache()


def bench_prefill(peer, tokens, results):
    s = peer.s
    torch.compiler.reset()
    began = time.monotonic()
    compiled = [torch.compile(f) for f in (peer.before, peer.after, peer.last)]
    ids = torch.randint(s.V, (1, tokens), device=peer.device)
    q, k, v = (torch.randn(1, h, tokens, s.D, device=peer.device, dtype=peer.dtype)
               for h in (s.Hq, s.Hkv, s.Hkv))
    backend, attention = best_backend(peer, q, k, v, True)
    run = lambda: peer.prefill(ids, backend, compiled)
    run()
    torch.cuda.synchronize()
    compile_s = time.monotonic() - began
    ms = median_ms(run, 2.0, most=20)
    rate = s.linear_flops(tokens) / ms / 1e9
    print(f"| prefill | 1 | {tokens} | {ms:.1f} | {1e3 * tokens / ms:.0f} tokens/s; linear layers alone "
          f"would be {rate:.0f} TFLOP/s; attention {s.layers * attention[backend]:.1f} ms | {backend} "
          f"| {compile_s:.0f} |", flush=True)
    results.append({"what": "prefill", "tokens": tokens, "ms": ms, "backend": backend,
                    "tokens_per_s": 1e3 * tokens / ms,
                    "attention_ms": attention, "linear_tflops_if_all": rate,
                    "compile_s": compile_s})


def bench_limits(results):
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    ms = median_ms(lambda: a @ b, 1.0)
    print(f"bf16 product 8192^3: {2 * 8192**3 / ms / 1e9:.0f} TFLOP/s")
    results.append({"what": "matmul", "tflops": 2 * 8192**3 / ms / 1e9})
    x = torch.ones(1 << 31, device="cuda", dtype=torch.float32)
    read = median_ms(lambda: x.sum(), 0.5)
    half = x.numel() // 2
    copy = median_ms(lambda: x[:half].copy_(x[half:]), 0.5)
    rates = [4 * x.numel() / t / 1e9 for t in (read, copy)]
    print(f"8 GiB: torch.sum reads {rates[0]:.2f} TB/s, copy {rates[1]:.2f} TB/s read and written")
    results.append({"what": "stream", "sum_tb_per_s": rates[0], "copy_tb_per_s": rates[1]})


def check():
    """Token by token through the cache gives what one prefill gives, in f32 on the CPU."""
    for hkv, qk_norm in ((4, False), (2, True)):
        s = Shape(C=64, F=96, Hq=4, Hkv=hkv, D=16, V=101, layers=3, eps=1e-5, theta=10000.,
                  qk_norm=qk_norm)
        peer = Peer(s, "cpu", torch.float32)
        ids = torch.randint(s.V, (2, 9), generator=torch.Generator().manual_seed(1))
        want = peer.prefill(ids, "math", (peer.before, peer.after, peer.last))
        cache = peer.make_cache(2, 9)
        parts = (peer.before_cached, peer.after, peer.last)
        for t in range(9):
            at = torch.tensor([t])
            got = peer.decode(ids[:, t:t + 1], cache, at, peer.factors(at), t + 1, "math", parts)
        error = ((got - want).norm() / want.norm()).item()
        print(f"{s}: decode against prefill {error:.1e}")
        if not error < 1e-5:
            sys.exit("decode and prefill differ")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="configs/llama-2-7b.json")
    parser.add_argument("--layers", type=int, help="fewer layers than the config has")
    parser.add_argument("--batch", type=int, nargs="*", default=[1])
    parser.add_argument("--context", type=int, nargs="*", default=[1024, 4096, 16384])
    parser.add_argument("--prefill", type=int, nargs="*", default=[])
    parser.add_argument("--mode", default="max-autotune-no-cudagraphs",
                        help="of torch.compile for decode: default, max-autotune-no-cudagraphs")
    parser.add_argument("--limits", action="store_true", help="matrix product and stream rates")
    parser.add_argument("--json", help="write the results to this file")
    parser.add_argument("--check", action="store_true", help="test this script on the CPU")
    args = parser.parse_args()
    if args.check:
        return check()
    if not torch.cuda.is_available():
        sys.exit("bench_torch: no CUDA device")
    torch.set_grad_enabled(False)
    # Products with one row become reductions that read each weight once.
    torch._inductor.config.coordinate_descent_tuning = True
    results = [{"what": "run", "torch": torch.__version__, "config": args.config,
                "gpu": torch.cuda.get_device_name()}]
    if args.limits:
        bench_limits(results)
        torch.cuda.empty_cache()
    peer = Peer(Shape.read(args.config, args.layers), "cuda", torch.bfloat16)
    print("| what | batch | context | ms | TB/s of weights and KV | attention | compiling, s |\n"
          "|---|---|---|---|---|---|---|")
    for batch in args.batch:
        bench_decode(peer, batch, args.context, args.mode, results)
    for tokens in args.prefill:
        bench_prefill(peer, tokens, results)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
