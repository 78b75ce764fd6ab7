#!/usr/bin/env python3
"""What level attention costs a Llama GGUF in accuracy, by share of far keys and importance
(docs/long-prompts.md). Needs the packages gguf, numpy and torch of tools/requirements.txt.

  tools/level_accuracy.py MODEL.gguf --text FILE --tokens 1024,4096 [--keep 0.5,0.25]
      [--importance own,probe,previous,random,best] [--ranks 4] [--levels 4] [--braid braid]

A computation of its own in f32: ranks' parts, rings, and the order of keys follow the docs, no code
is shared with the engine. For each length two texts are computed: the first tokens of FILE, and
their first half twice. Columns:

  pairs      share of pairs of a query and a key that are computed
  dropped    mean over rows, heads and thinned layers of dense attention's mass on keys left out
  error      mean of |o - o'| / |o|, of dense o and thinned o' of one attention
  KL, top-1  of next tokens by dense and by thinned logits: divergence, share of equal first tokens
  other      perplexity of the second half of the text
  copy       perplexity of the second half where it repeats the first
"""

import argparse
import json
import math
import subprocess
import sys

import torch
from gguf import GGUFReader, dequantize

SCORING, PROBES, SINKS, RECENT = 32, 64, 4, 16
ROWS = 512  # of logits at a time
BLOCK = 64  # rows of scores at a time


class Model:
    def __init__(self, path):
        reader = GGUFReader(path)
        field = lambda name: reader.fields[f"llama.{name}"].contents()
        self.layers = field("block_count")
        self.heads, self.kv_heads = field("attention.head_count"), field("attention.head_count_kv")
        self.eps, self.base = field("attention.layer_norm_rms_epsilon"), field("rope.freq_base")
        self.w = {t.name: torch.tensor(dequantize(t.data, t.tensor_type)) for t in reader.tensors}
        self.D = self.w["blk.0.attn_q.weight"].shape[0] // self.heads
        self.head = self.w.get("output.weight", self.w["token_embd.weight"])

    def norm(self, x, name):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.w[name]

    def rotate(self, x):
        """GGUF's Llama turns neighbours: x [T, heads, D]."""
        angle = torch.arange(len(x), dtype=torch.float64)[:, None] * self.base ** (
            -torch.arange(0, self.D, 2, dtype=torch.float64) / self.D)
        cos, sin = angle.cos().float()[:, None], angle.sin().float()[:, None]
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

    def forward(self, ids, attend):
        """Logits [T, V]; attend(layer, q, k, v) of [heads, T, D] gives [heads, T, D]."""
        x = self.w["token_embd.weight"][ids]
        T = len(ids)
        for i in range(self.layers):
            w = lambda name: self.w[f"blk.{i}.{name}.weight"]
            y = self.norm(x, f"blk.{i}.attn_norm.weight")
            q = self.rotate((y @ w("attn_q").T).view(T, self.heads, self.D)).transpose(0, 1)
            k = self.rotate((y @ w("attn_k").T).view(T, self.kv_heads, self.D)).transpose(0, 1)
            v = (y @ w("attn_v").T).view(T, self.kv_heads, self.D).transpose(0, 1)
            x = x + attend(i, q, k, v).transpose(0, 1).reshape(T, -1) @ w("attn_output").T
            y = self.norm(x, f"blk.{i}.ffn_norm.weight")
            up = torch.nn.functional.silu(y @ w("ffn_gate").T) * (y @ w("ffn_up").T)
            x = x + up @ w("ffn_down").T
        return self.norm(x, "output_norm.weight") @ self.head.T


class Parts:
    """Runs of positions, in zigzag over ranks, and the share that one sees of another."""

    def __init__(self, T, ranks, groups, keep):
        self.groups = groups or [ranks]
        self.keep = list(keep)
        while len(self.keep) < len(self.groups):
            n = len(self.keep)
            self.keep.append(self.keep[-1] * self.groups[n - 1] / self.groups[n])
        whole = [T // ranks + (r < T % ranks) for r in range(ranks)]
        sizes = [-(-n // 2) for n in whole] + [n // 2 for n in reversed(whole)]
        self.place = [(0, r) for r in range(ranks)] + [(1, r) for r in reversed(range(ranks))]
        self.ranges, at = [], 0
        for n in sizes:
            self.ranges.append(range(at, at + n))
            at += n

    def kept(self, reader, part):
        (half, a), (other, b) = self.place[reader], self.place[part]
        level = len(self.groups) - 1
        if half == other:
            level = next(v for v, g in enumerate(self.groups) if a // g == b // g)
        n = len(self.ranges[part])
        return min(n, math.ceil(self.keep[level] * n))


class Attended:
    """Attention of rows over some keys: o [heads, rows, D] and log sums [heads, rows, 1]."""

    def __init__(self, o, total):
        self.o, self.total = o, total

    def beside(self, other):
        """Attention over both sets of keys."""
        total = torch.logaddexp(self.total, other.total)
        return Attended(self.o * (self.total - total).exp() + other.o * (other.total - total).exp(),
                        total)


def blocks(q, k, causal):
    """Scores of a few rows at a time, which caches hold; `causal`: row i sees keys 0 to i."""
    for at in range(0, q.shape[1], BLOCK):
        rows = q[:, at:at + BLOCK]
        end = at + rows.shape[1] if causal else len(k)
        s = rows @ k[:end].T * q.shape[-1]**-0.5
        if causal:
            n = rows.shape[1]
            s[:, :, at:].masked_fill_(torch.ones(n, n, dtype=torch.bool).triu_(1), -math.inf)
        yield at, end, s


def attended(q, k, v, causal):
    outs, totals = [], []
    for _, end, s in blocks(q, k, causal):
        most = s.amax(-1, keepdim=True)
        s.sub_(most).exp_()
        total = s.sum(-1, keepdim=True)
        outs.append(s @ v[:end] / total)
        totals.append(most + total.log())
    return Attended(torch.cat(outs, 1), torch.cat(totals, 1))


def with_far(own, q, k, v, far):
    """Attention over own keys, joined with that of the same rows over far keys, if there are any."""
    k, v = k[far], v[far]
    return own.beside(attended(q, k, v, False)) if len(k) else own


def paid(q, k, total, causal):
    """What rows, with log sums over all of their keys, pay to each of these keys: [keys]."""
    sums = torch.zeros(len(k))
    for at, end, s in blocks(q, k, causal):
        sums[:end] += s.sub_(total[:, at:at + BLOCK]).exp_().sum((0, 1))
    return sums


class Thinned:
    """Attention with far keys left out, and sums of what that changes where `measure` asks."""

    def __init__(self, model, parts, importance, seed, measure):
        self.model, self.parts, self.importance, self.measure = model, parts, importance, measure
        self.random = torch.Generator().manual_seed(seed)
        self.before = None  # what keys were paid in the layer before: [kv_heads, T]
        self.dropped = self.error = self.rows = self.pairs = self.all_pairs = 0.0

    def mean_paid(self, q, k, rows, begin=0):
        """What keys from `begin` on are paid by the rows that see them: [T - begin]."""
        end = rows.stop
        s = q[:, rows.start:end] @ k[begin:end].T * self.model.D**-0.5
        later = torch.arange(begin, end)[None, :] > torch.arange(rows.start, end)[:, None]
        sums = s.masked_fill_(later, -math.inf).softmax(-1).sum((0, 1))
        seen = len(rows) - (torch.arange(len(sums)) + begin - rows.start).clamp(min=0)
        return sums / seen

    def scores(self, h, q, k, v):
        T, parts = k.shape[0], self.parts.ranges
        if self.importance == "random":
            return torch.rand(T, generator=self.random)
        if self.importance == "own":
            return torch.cat([self.mean_paid(q, k, range(max(p.start, p.stop - SCORING), p.stop),
                                             p.start) for p in parts])
        if self.importance == "probe":
            return self.mean_paid(q, k, range(T - min(PROBES, T), T))
        if self.importance == "previous":
            return self.before[h]
        far = torch.zeros(T)  # best: what queries of later parts pay
        for p in parts[1:]:
            rows, early = q[:, p.start:p.stop], slice(0, p.start)
            own = attended(rows, k[p.start:p.stop], v[p.start:p.stop], True)
            every = with_far(own, rows, k, v, early)
            far[early] += paid(rows, k[early], every.total, False)
        return far

    def order(self, scores):
        """Keys of each part in their order."""
        orders = []
        for i, p in enumerate(self.parts.ranges):
            s = scores[p.start:p.stop].double().clone()
            recent = min(RECENT, len(p))
            s[len(p) - recent:] = 1e6 + torch.arange(recent)
            if i == 0:
                s[:SINKS] = 2e6 - torch.arange(min(SINKS, len(p)))
            orders.append(p.start + torch.argsort(s, descending=True, stable=True))
        return orders

    def __call__(self, layer, q, k, v):
        thin = 0 < layer < self.model.layers - 1
        group = self.model.heads // self.model.kv_heads
        out, sums = torch.empty_like(q), torch.zeros(len(k), k.shape[1])
        for h in range(len(k)):
            heads = slice(h * group, (h + 1) * group)
            orders = self.order(self.scores(h, q[heads], k[h], v[h])) if thin else None
            for i, p in enumerate(self.parts.ranges):
                rows, here = q[heads, p.start:p.stop], slice(p.start, p.stop)
                own = attended(rows, k[h, here], v[h, here], True)
                far = torch.arange(p.start)
                if thin and i > 0:
                    far = torch.cat([orders[j][:self.parts.kept(i, j)] for j in range(i)])
                a = with_far(own, rows, k[h], v[h], far)
                if thin and self.measure:
                    every = with_far(own, rows, k[h], v[h], slice(0, p.start))
                    self.dropped += (1 - (a.total - every.total).exp()).sum().item()
                    self.error += ((a.o - every.o).norm(dim=-1) / every.o.norm(dim=-1)).sum().item()
                    self.rows += every.total.numel()
                    half = len(p) * (len(p) + 1) / 2
                    self.pairs += half + len(p) * len(far)
                    self.all_pairs += half + len(p) * p.start
                out[heads, here] = a.o
                if self.importance == "previous":
                    sums[h, here] += paid(rows, k[h, here], a.total, True)
                    sums[h, far] += paid(rows, k[h, far], a.total, False)
        self.before = sums / torch.arange(k.shape[1], 0, -1)
        return out


def dense(layer, q, k, v):
    group = len(q) // len(k)
    return torch.nn.functional.scaled_dot_product_attention(
        q[None], k.repeat_interleave(group, 0)[None], v.repeat_interleave(group, 0)[None],
        is_causal=True)[0]


def perplexity(logits, ids, first):
    """As braid perplexity scores a chunk: the ids from `first` on."""
    lost = 0.0
    for at in range(first, len(ids), ROWS):
        end = min(at + ROWS, len(ids))
        lost += torch.nn.functional.cross_entropy(logits[at - 1:end - 1], ids[at:end],
                                                  reduction="sum").item()
    return math.exp(lost / (len(ids) - first))


def compare(model, ids, want, attend):
    logits = model.forward(ids, attend)
    kl = same = 0.0
    for at in range(0, len(ids), ROWS):
        p, q = (x[at:at + ROWS].log_softmax(-1) for x in (want, logits))
        kl += (p.exp() * (p - q)).sum().item()
        same += (p.argmax(-1) == q.argmax(-1)).sum().item()
    return logits, kl / len(ids), same / len(ids)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model")
    parser.add_argument("--text", required=True)
    parser.add_argument("--tokens", default="1024")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--levels", default="")
    parser.add_argument("--keep", default="0.5", help="lists of shares, divided by /: 0.5/0.5,0.25")
    parser.add_argument("--importance", default="own,probe,previous,random,best")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--braid", default="braid", help="tokenizes")
    args = parser.parse_args()
    torch.set_grad_enabled(False)
    with open(args.text) as file:
        text = file.read()
    ids = torch.tensor(json.loads(subprocess.run(
        [args.braid, "tokenize", "-m", args.model, "--json"], input=text, text=True, check=True,
        stdout=subprocess.PIPE).stdout))
    model = Model(args.model)
    groups = [int(g) for g in args.levels.split(",")] if args.levels else []
    print("| tokens | keep | importance | pairs | dropped | error | KL | top-1 | other | copy |")
    print("|--:|:--|:--|--:|--:|--:|--:|--:|--:|--:|")
    for T in (int(n) for n in args.tokens.split(",")):
        if len(ids) < T:
            sys.exit(f"{args.text} has {len(ids)} tokens, wanted {T}")
        other = ids[:T]
        copy = torch.cat((ids[:T // 2], ids[:T - T // 2]))
        want = model.forward(other, dense)
        twice = perplexity(model.forward(copy, dense), copy, T // 2)
        print(f"| {T} | all | | 100% | 0 | 0 | 0 | 100% | {perplexity(want, other, T // 2):.2f} | "
              f"{twice:.3f} |", flush=True)
        for keep in args.keep.split("/"):
            shares = [float(k) for k in keep.split(",")]
            parts = Parts(T, args.ranks, groups, shares)
            for importance in args.importance.split(","):
                a = Thinned(model, parts, importance, args.seed, True)
                logits, kl, top = compare(model, other, want, a)
                value = perplexity(logits, other, T // 2)
                del logits
                copied = model.forward(
                    copy, Thinned(model, parts, importance, args.seed, False))
                print(f"| {T} | {keep} | {importance} | {a.pairs / a.all_pairs:.1%} | "
                      f"{a.dropped / a.rows:.2%} | {a.error / a.rows:.3f} | {kl:.4f} | {top:.1%} | "
                      f"{value:.2f} | {perplexity(copied, copy, T // 2):.3f} |", flush=True)


if __name__ == "__main__":
    main()
