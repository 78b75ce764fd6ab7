#!/usr/bin/env python3
"""The peer of mixtures on a GPU: experts and latent attention in plain PyTorch, random bf16 weights.

    python3 tools/bench_torch_moe.py --config configs/qwen3-30b-a3b.json --layers 12 \\
        --batch 1 16 --context 1024 --prefill 8192

As bench_torch.py: decode is the whole step in one CUDA graph, and what stands around attention is
compiled. Experts run in two forms, torch's grouped_mm over rows sorted by expert and products with
gathered weights; the faster of both counts. Latent attention is absorbed in decode and plain in
prompts. Routers and shared experts are a softmax of all scores and a dense block: their cost, not a
family's formula, is what the peer has.

    python3 tools/bench_torch_moe.py --check     # small, on the CPU
"""
import argparse
import json
import math
import sys
from dataclasses import dataclass

import bench_torch
from bench_torch import captured, median_ms, rms_norm, rotate
import torch
import torch.nn.functional as F
from torch.nn.attention import sdpa_kernel


@dataclass(frozen=True)
class Shape:
    C: int
    V: int
    layers: int
    eps: float
    theta: float
    Hq: int
    Hkv: int
    D: int       # of a query and a key
    qk_norm: bool
    E: int
    k: int
    F: int       # of an expert
    shared: int  # width of the shared experts, or 0
    dense: int   # first layers without experts
    dense_F: int
    R: int       # latents, or 0
    Dr: int
    Dv: int

    @classmethod
    def read(cls, path, layers=None):
        with open(path) as f:
            c = json.load(f)
        heads, latent = c["num_attention_heads"], c.get("kv_lora_rank", 0)
        F_ = c.get("moe_intermediate_size") or c["intermediate_size"]
        d = c["qk_nope_head_dim"] + c["qk_rope_head_dim"] if latent else \
            c.get("head_dim") or c["hidden_size"] // heads
        return cls(C=c["hidden_size"], V=c["vocab_size"], layers=layers or c["num_hidden_layers"],
                   eps=c["rms_norm_eps"], theta=c["rope_theta"], Hq=heads,
                   Hkv=heads if latent else c.get("num_key_value_heads", heads), D=d,
                   qk_norm="Qwen3" in c["architectures"][0],
                   E=c.get("num_local_experts") or c.get("num_experts") or c["n_routed_experts"],
                   k=c["num_experts_per_tok"], F=F_, shared=F_ * (c.get("n_shared_experts") or 0),
                   dense=c.get("first_k_dense_replace", 0), dense_F=c["intermediate_size"],
                   R=latent, Dr=c.get("qk_rope_head_dim", 0), Dv=c.get("v_head_dim", d))


class Layer:
    """Weights of one layer, [out, in]; of experts [E, in, out], as grouped_mm reads them."""

    def __init__(self, s, i, rand, device, dtype):
        ones = lambda n: torch.ones(n, device=device, dtype=dtype)
        self.norm1, self.norm2 = ones(s.C), ones(s.C)
        self.q_norm = self.k_norm = ones(s.D)
        if s.R:
            self.qkv = rand(s.Hq * s.D + s.R + s.Dr, s.C)
            self.kv_norm = ones(s.R)
            self.k_b = rand(s.Hq, s.D - s.Dr, s.R)
            self.v_b = rand(s.Hq, s.Dv, s.R)
        else:
            self.qkv = rand((s.Hq + 2 * s.Hkv) * s.D, s.C)
        self.o = rand(s.C, s.Hq * s.Dv)
        self.sparse = i >= s.dense
        if not self.sparse:
            self.gate_up, self.down = rand(2 * s.dense_F, s.C), rand(s.C, s.dense_F)
            return
        self.router = rand(s.E, s.C)
        self.gate_up, self.down = rand(s.E, 2 * s.F, s.C), rand(s.E, s.C, s.F)
        if s.shared:
            self.shared_in, self.shared_out = rand(2 * s.shared, s.C), rand(s.C, s.shared)


def gated(x, gate_up, down):
    gate, up = F.linear(x, gate_up).chunk(2, -1)
    return F.linear(F.silu(gate) * up, down)


class Peer:
    def __init__(self, shape, device, dtype, form, seed=0):
        self.s, self.device, self.dtype, self.form = shape, device, dtype, form
        g = torch.Generator(device=device).manual_seed(seed)

        def rand(*size):
            w = torch.empty(size, device=device, dtype=dtype)
            return w.normal_(0, 1 / math.sqrt(size[-1]), generator=g)

        self.embedding, self.head = rand(shape.V, shape.C), rand(shape.V, shape.C)
        self.norm = torch.ones(shape.C, device=device, dtype=dtype)
        self.layers = [Layer(shape, i, rand, device, dtype) for i in range(shape.layers)]

    def factors(self, positions):
        d = self.s.Dr or self.s.D
        powers = torch.arange(0, d, 2, device=self.device, dtype=torch.float64) / d
        angle = positions.double()[:, None] * self.s.theta ** -powers
        return angle.cos().float(), angle.sin().float()

    # Parts between the calls of attention. x [B, T, C] is the residual stream, l a layer.
    def heads(self, x, cos, sin, l):
        s = self.s
        b, t, _ = x.shape
        y = F.linear(rms_norm(x, l.norm1, s.eps), l.qkv)
        q, k, v = y.view(b, t, -1, s.D).transpose(1, 2).split((s.Hq, s.Hkv, s.Hkv), 1)
        if s.qk_norm:
            q, k = rms_norm(q, l.q_norm, s.eps), rms_norm(k, l.k_norm, s.eps)
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def latents(self, x, cos, sin, l):
        """Queries without and with positions, latents and the heads' common key."""
        s = self.s
        b, t, _ = x.shape
        q, c, k = F.linear(rms_norm(x, l.norm1, s.eps), l.qkv).split(
            (s.Hq * s.D, s.R, s.Dr), -1)
        q_n, q_r = q.view(b, t, s.Hq, s.D).transpose(1, 2).split((s.D - s.Dr, s.Dr), -1)
        return (q_n, rotate(q_r, cos, sin), rms_norm(c, l.kv_norm, s.eps),
                rotate(k.view(b, 1, t, s.Dr), cos, sin))

    def before_prompt(self, x, cos, sin, l):
        if not self.s.R:
            return self.heads(x, cos, sin, l)
        q_n, q_r, c, k_r = self.latents(x, cos, sin, l)
        k_n = torch.einsum("btr,hdr->bhtd", c, l.k_b)
        v = torch.einsum("btr,hdr->bhtd", c, l.v_b)
        return (torch.cat((q_n, q_r), -1),
                torch.cat((k_n, k_r.expand(-1, self.s.Hq, -1, -1)), -1), v)

    def before_cached(self, x, cos, sin, l, keys, values, at):
        if not self.s.R:
            q, k, v = self.heads(x, cos, sin, l)
            keys.index_copy_(2, at, k)
            values.index_copy_(2, at, v)
            return q
        q_n, q_r, c, k_r = self.latents(x, cos, sin, l)
        keys.index_copy_(2, at, torch.cat((c[:, None], k_r), -1))
        return torch.cat((torch.einsum("bhtd,hdr->bhtr", q_n, l.k_b), q_r), -1)

    def after(self, x, attended, l):
        b, h, t, d = attended.shape
        if d == self.s.R:
            attended = torch.einsum("bhtr,hdr->bhtd", attended, l.v_b)
        x = x + F.linear(attended.transpose(1, 2).reshape(b, t, -1), l.o)
        y = rms_norm(x, l.norm2, self.s.eps).view(b * t, -1)
        y = self.mixture(y, l) if l.sparse else gated(y, l.gate_up, l.down)
        return x + y.view(b, t, -1)

    def mixture(self, y, l):
        s = self.s
        w, e = torch.softmax(F.linear(y, l.router).float(), -1).topk(s.k, -1)
        w = (w / w.sum(-1, keepdim=True)).to(y.dtype)
        out = (self.grouped if self.form == "grouped" else self.gathered)(y, w, e, l)
        return out + gated(y, l.shared_in, l.shared_out) if s.shared else out

    def grouped(self, y, w, e, l):
        order = e.flatten().argsort(stable=True)
        ends = (e.flatten()[order, None] == torch.arange(self.s.E, device=y.device)).sum(0) \
            .cumsum(0).to(torch.int32)
        gate, up = F.grouped_mm(y[order // self.s.k], l.gate_up.transpose(1, 2),
                                offs=ends).chunk(2, -1)
        z = F.grouped_mm(F.silu(gate) * up, l.down.transpose(1, 2), offs=ends)
        back = torch.empty_like(z).index_copy_(0, order, z)
        return (back.view(*w.shape, -1) * w[..., None]).sum(1)

    def gathered(self, y, w, e, l):
        gate, up = torch.einsum("tc,tkfc->tkf", y, l.gate_up[e]).chunk(2, -1)
        return torch.einsum("tkf,tkcf,tk->tc", F.silu(gate) * up, l.down[e], w)

    def attention(self, q, k, v, causal, backend):
        s = self.s
        with sdpa_kernel(bench_torch.BACKENDS[backend]):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=s.D ** -0.5,
                                                  enable_gqa=q.shape[1] != k.shape[1])

    def prefill(self, ids, backend, parts):
        before, after, last = parts
        cos, sin = self.factors(torch.arange(ids.shape[1], device=self.device))
        x = F.embedding(ids, self.embedding)
        for l in self.layers:
            x = after(x, self.attention(*before(x, cos, sin, l), True, backend), l)
        return last(x[:, -1:])

    def decode(self, ids, cache, at, factors, live, backend, parts):
        before, after, last = parts
        x = F.embedding(ids, self.embedding)
        for l, (keys, values) in zip(self.layers, cache):
            q = before(x, *factors, l, keys, values, at)
            k = keys[:, :, :live]
            if self.s.R:  # all heads read one key: they are the rows of one product
                score = (q.squeeze(2) @ k.squeeze(1).transpose(1, 2)) * self.s.D ** -0.5
                p = torch.softmax(score.float(), -1).to(q.dtype)
                attended = (p @ k.squeeze(1)[..., :self.s.R])[:, :, None]
            else:
                attended = self.attention(q, k, values[:, :, :live], False, backend)
            x = after(x, attended, l)
        return last(x)

    def last(self, x):
        return F.linear(rms_norm(x, self.norm, self.s.eps), self.head)

    def make_cache(self, batch, capacity):
        s = self.s
        make = lambda h, d: torch.empty(batch, h, capacity, d, device=self.device,
                                        dtype=self.dtype).normal_()
        if s.R:
            return [(make(1, s.R + s.Dr), None) for _ in range(s.layers)]
        return [(make(s.Hkv, s.D), make(s.Hkv, s.D)) for _ in range(s.layers)]


def compiled(*parts):
    return [torch.compile(p) for p in parts]


def report(what, batch, size, times, results):
    best = min(times, key=times.get)
    shown = ", ".join(f"{name} {ms:.3f}" for name, ms in sorted(times.items()))
    print(f"| {what} | {batch} | {size} | {times[best]:.3f} | {shown} |", flush=True)
    results.append({"what": what, "batch": batch, "size": size, "ms": times})


def tried(times, name, measure):
    try:
        times[name] = measure()
    except RuntimeError as e:
        print(f"#   {name}: {str(e).splitlines()[0]}", file=sys.stderr)
    torch.cuda.empty_cache()


def bench(peer, args, results):
    for batch in args.batch:
        for context in args.context:
            times = {}
            for form in ("grouped", "gathered"):
                # Gathered weights of more rows are more bytes than all experts.
                if form == "gathered" and batch * peer.s.k > peer.s.E:
                    continue
                peer.form = form
                torch.compiler.reset()
                cache = peer.make_cache(batch, context)
                at = torch.tensor([context - 1], device=peer.device)
                ids = torch.randint(peer.s.V, (batch, 1), device=peer.device)
                parts = compiled(peer.before_cached, peer.after, peer.last)
                factors = peer.factors(at)
                for backend in ("flash", "cudnn") if not peer.s.R else ("matmul",):
                    step = lambda: peer.decode(ids, cache, at, factors, context, backend, parts)
                    tried(times, f"{form} {backend}", lambda: median_ms(captured(step), 0.5))
            if times:
                report("decode", batch, context, times, results)
    for tokens in args.prefill:
        times = {}
        peer.form = "grouped"
        torch.compiler.reset()
        ids = torch.randint(peer.s.V, (1, tokens), device=peer.device)
        parts = compiled(peer.before_prompt, peer.after, peer.last)
        for backend in ("flash", "cudnn"):
            tried(times, backend,
                  lambda: median_ms(lambda: peer.prefill(ids, backend, parts), 0.7, most=10))
        if times:
            report("prefill", 1, tokens, times, results)


def check():
    """Both forms of experts agree, and token by token gives what one prompt gives, in f32."""
    for latent in (False, True):
        s = Shape(C=64, V=101, layers=3, eps=1e-5, theta=10000., Hq=4, Hkv=4 if latent else 2,
                  D=16, qk_norm=not latent, E=8, k=2, F=32, shared=32 if latent else 0,
                  dense=int(latent), dense_F=96, R=24 if latent else 0, Dr=8 if latent else 0,
                  Dv=12 if latent else 16)
        peer = Peer(s, "cpu", torch.float32, "gathered")
        ids = torch.randint(s.V, (2, 9), generator=torch.Generator().manual_seed(1))
        want = peer.prefill(ids, "math", (peer.before_prompt, peer.after, peer.last))
        cache = peer.make_cache(2, 9)
        for t in range(9):
            at = torch.tensor([t])
            got = peer.decode(ids[:, t:t + 1], cache, at, peer.factors(at), t + 1, "math",
                              (peer.before_cached, peer.after, peer.last))
        error = ((got - want).norm() / want.norm()).item()
        y = torch.randn(10, s.C)
        w, e = torch.rand(10, s.k), torch.randint(s.E, (10, s.k))
        a, b = (f(y, w, e, peer.layers[-1]) for f in (peer.grouped, peer.gathered))
        forms = ((a - b).norm() / b.norm()).item()
        print(f"latent {latent}: decode against prefill {error:.1e}, forms {forms:.1e}")
        if not max(error, forms) < 1e-5:
            sys.exit("the peer disagrees with itself")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="configs/qwen3-30b-a3b.json")
    parser.add_argument("--layers", type=int, help="fewer layers than the config has")
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 16])
    parser.add_argument("--context", type=int, nargs="*", default=[1024])
    parser.add_argument("--prefill", type=int, nargs="*", default=[])
    parser.add_argument("--json", help="write the results to this file")
    parser.add_argument("--check", action="store_true", help="test this script on the CPU")
    args = parser.parse_args()
    if args.check:
        return check()
    if not torch.cuda.is_available():
        sys.exit("bench_torch_moe: no CUDA device")
    with torch.no_grad():
        s = Shape.read(args.config, args.layers)
        peer = Peer(s, "cuda", torch.bfloat16, "grouped")
        print(f"{args.config}, {s.layers} layers, {torch.cuda.get_device_name()}, torch "
              f"{torch.__version__}")
        print("| what | sequences | tokens | ms | by form |\n|---|---:|---:|---:|---|", flush=True)
        results = []
        bench(peer, args, results)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
