#!/usr/bin/env python3
"""What level attention costs a Llama GGUF in accuracy, by share of far keys and importance
(docs/long-prompts.md). Needs the packages gguf, numpy and torch of tools/requirements.txt.

  tools/level_accuracy.py MODEL.gguf --text FILE --tokens 1024,4096 [--keep 0.5,0.25]
      [--importance own,probe,previous,random,best] [--ranks 4] [--levels 4] [--braid braid]
      [--device cpu|cuda]

A computation of its own in f32: ranks' parts, rings, and the order of keys follow the docs, no code
is shared with the engine. tests/lint/level_accuracy_test.py holds its sets of keys to those of
tools/make_level_goldens.py, to which the engine's tests hold the engine. For each length two texts are computed: the first tokens of FILE, and
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

SCORING, PROBES, SINKS, RECENT = 32, 64, 4, 16
ROWS = 512  # of logits at a time
SCORES = {"cpu": 1 << 18, "cuda": 1 << 27}  # at a time: a core's cache, a part of a GPU's memory


class Model:
    def __init__(self, path, device):
        from gguf import GGUFReader, dequantize  # not wanted by the test

        reader = GGUFReader(path)
        field = lambda name: reader.fields[f"llama.{name}"].contents()
        self.layers = field("block_count")
        self.heads, self.kv_heads = field("attention.head_count"), field("attention.head_count_kv")
        self.eps, self.base = field("attention.layer_norm_rms_epsilon"), field("rope.freq_base")
        self.w = {t.name: torch.tensor(dequantize(t.data, t.tensor_type), device=device)
                  for t in reader.tensors}
        self.D = self.w["blk.0.attn_q.weight"].shape[0] // self.heads
        self.head = self.w.get("output.weight", self.w["token_embd.weight"])

    def norm(self, x, name):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.w[name]

    def rotate(self, x):
        """GGUF's Llama turns neighbours: x [T, heads, D]."""
        steps = torch.arange(0, self.D, 2, dtype=torch.float64, device=x.device)
        places = torch.arange(len(x), dtype=torch.float64, device=x.device)
        angle = places[:, None] * self.base ** (-steps / self.D)
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
    """Attention of rows over some keys: o [kv_heads, rows, group, D], log sums [.., 1]."""

    def __init__(self, o, total):
        self.o, self.total = o, total

    def beside(self, other):
        """Attention over both sets of keys."""
        total = torch.logaddexp(self.total, other.total)
        return Attended(self.o * (self.total - total).exp() + other.o * (other.total - total).exp(),
                        total)


def blocks(q, k, causal):
    """Scores [kv_heads, rows * group, keys] of a few rows at a time; `causal`: row i sees keys 0 to
    i."""
    (H, n, group, D), keys = q.shape, k.shape[1]
    step = max(8, SCORES[q.device.type] // (H * group * keys))
    for at in range(0, n, step):
        rows = q[:, at:at + step]
        count = rows.shape[1]
        end = at + count if causal else keys
        s = torch.bmm(rows.flatten(1, 2), k[:, :end].transpose(1, 2)).mul_(D**-0.5)
        if causal:
            later = torch.ones(count, count, dtype=torch.bool, device=q.device).triu_(1)
            s.view(H, count, group, end)[..., at:].masked_fill_(later[:, None], -math.inf)
        yield slice(at, at + count), end, s


def attended(q, k, v, causal):
    o, total = torch.empty_like(q), torch.empty_like(q[..., :1])
    for rows, end, s in blocks(q, k, causal):
        most = s.amax(-1, keepdim=True)
        sums = s.sub_(most).exp_().sum(-1, keepdim=True)
        o[:, rows] = (torch.bmm(s, v[:, :end]) / sums).view_as(o[:, rows])
        total[:, rows] = (most + sums.log()).view_as(total[:, rows])
    return Attended(o, total)


def with_far(own, q, k, v, far):
    """Attention over own keys, joined with that of the same rows over far keys, if any."""
    return own.beside(attended(q, of(k, far), of(v, far), False)) if far.shape[1] else own


def of(x, keys):
    """Rows of x [kv_heads, T, D] by each head's keys [kv_heads, n]."""
    return x.gather(1, keys[..., None].expand(-1, -1, x.shape[-1]))


def paid(q, k, total):
    """What rows, with log sums over all their keys, pay to each of these keys: [kv_heads, keys]."""
    sums = torch.zeros(k.shape[:2], device=k.device)
    for rows, _, s in blocks(q, k, False):
        sums += s.sub_(total[:, rows].flatten(1, 2)).exp_().sum(1)
    return sums


def paid_among(q, k, rows, keys):
    """What the rows pay to keys [kv_heads, n], and how many rows see each. A row pays 1 in all, to
    those of the keys that it sees."""
    at = torch.arange(rows.start, rows.stop, device=k.device)[:, None]
    sees = (keys[:, None] <= at)[:, :, None]
    s = torch.einsum("htgd,hkd->htgk", q[:, rows.start:rows.stop], of(k, keys)) * k.shape[-1]**-0.5
    weights = s.masked_fill_(~sees, -math.inf).softmax(-1)
    return weights.sum((1, 2)), sees.sum((1, 2))


def last(n, part):
    return range(max(part.start, part.stop - n), part.stop)


def positions(k, part):
    """The same keys for each head: [kv_heads, n]."""
    return torch.arange(part.start, part.stop, device=k.device).expand(len(k), -1)


def by_group(q, k):
    """q [heads, T, D] as [kv_heads, T, group, D]."""
    return q.unflatten(0, (len(k), -1)).transpose(1, 2).contiguous()


class Thinned:
    """Attention with far keys left out, and sums of what that changes where `measure` asks."""

    def __init__(self, model, parts, importance, seed, measure):
        self.model, self.parts, self.importance, self.measure = model, parts, importance, measure
        self.random = torch.Generator().manual_seed(seed)
        self.before = None  # what keys were paid in the layer before: [kv_heads, T]
        self.dropped = self.error = self.rows = self.pairs = self.all_pairs = 0.0

    def mean_paid(self, q, k, rows, part):
        """What a part's keys are paid, among them, by the rows that see them: [kv_heads, keys]."""
        sums, seen = paid_among(q, k, rows, positions(k, part))
        return sums / seen

    def scores(self, q, k, v, own):
        """Importances [kv_heads, T], and dense attention of each part where it was needed."""
        H, T, _ = k.shape
        parts = self.parts.ranges
        if self.importance == "random":
            return torch.stack([torch.rand(T, generator=self.random) for _ in range(H)]).to(k), None
        if self.importance == "own":
            return torch.cat([self.mean_paid(q, k, last(SCORING, p), p) for p in parts], 1), None
        if self.importance == "probe":
            probes = last(PROBES, parts[-1])
            return torch.cat([self.mean_paid(q, k, probes, p) for p in parts], 1), None
        if self.importance == "previous":
            return self.before, None
        far, dense = torch.zeros(H, T, device=k.device), []  # best: what queries of later parts pay
        for i, p in enumerate(parts):
            rows = q[:, p.start:p.stop]
            dense.append(own[i])
            if i > 0:
                early = slice(0, p.start)
                dense[i] = own[i].beside(attended(rows, k[:, early], v[:, early], False))
                far[:, early] += paid(rows, k[:, early], dense[i].total)
        return far, dense

    def order(self, scores):
        """Keys of each part in their order: [kv_heads, rows]."""
        orders = []
        for i, p in enumerate(self.parts.ranges):
            s = scores[:, p.start:p.stop].double().clone()
            recent = min(RECENT, len(p))
            s[:, len(p) - recent:] = 1e6 + torch.arange(recent, device=s.device)
            if i == 0:
                s[:, :SINKS] = 2e6 - torch.arange(min(SINKS, len(p)), device=s.device)
            orders.append(p.start + torch.argsort(s, dim=1, descending=True, stable=True))
        return orders

    def far(self, i, orders):
        """Earlier parts' keys that part i reads: [kv_heads, n]."""
        return torch.cat([orders[j][:, :self.parts.kept(i, j)] for j in range(i)], 1)

    def __call__(self, layer, q, k, v):
        thin = 0 < layer < self.model.layers - 1
        q = by_group(q, k)
        ranges = self.parts.ranges
        rows = [q[:, p.start:p.stop] for p in ranges]
        own = [attended(r, k[:, p.start:p.stop], v[:, p.start:p.stop], True)
               for r, p in zip(rows, ranges)]
        if thin:
            scores, whole = self.scores(q, k, v, own)
            orders = self.order(scores)
        out = torch.empty_like(q)
        sums, seen = torch.zeros(2, *k.shape[:2], device=k.device)
        for i, p in enumerate(ranges):
            far = self.far(i, orders) if thin and i > 0 else positions(k, range(p.start))
            a = with_far(own[i], rows[i], k, v, far)
            if thin and self.measure:
                if whole:
                    every = whole[i]
                else:
                    left = [orders[j][:, self.parts.kept(i, j):] for j in range(i)]
                    every = with_far(a, rows[i], k, v, torch.cat(left, 1)) if left else a
                self.measured(p, a, every, far.shape[1])
            out[:, p.start:p.stop] = a.o
            if self.importance == "previous":
                keys = torch.cat((far, positions(k, p)), 1)
                weights, readers = paid_among(q, k, last(SCORING, p), keys)
                sums.scatter_add_(1, keys, weights)
                seen.scatter_add_(1, keys, readers.to(seen))
        if self.importance == "previous":
            self.before = sums / seen
        return out.transpose(1, 2).flatten(0, 1)

    def measured(self, part, a, every, far):
        self.dropped += (1 - (a.total - every.total).exp()).sum().item()
        self.error += ((a.o - every.o).norm(dim=-1) / every.o.norm(dim=-1)).sum().item()
        self.rows += every.total.numel()
        half = len(part) * (len(part) + 1) / 2
        self.pairs += half + len(part) * far
        self.all_pairs += half + len(part) * part.start


def dense(layer, q, k, v):
    return attended(by_group(q, k), k, v, True).o.transpose(1, 2).flatten(0, 1)


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
    parser.add_argument("--device", default="cpu", choices=list(SCORES))
    args = parser.parse_args()
    torch.set_float32_matmul_precision("highest")  # no TF32
    torch.set_grad_enabled(False)
    with open(args.text) as file:
        text = file.read()
    ids = torch.tensor(json.loads(subprocess.run(
        [args.braid, "tokenize", "-m", args.model, "--json"], input=text, text=True, check=True,
        stdout=subprocess.PIPE).stdout))
    ids = ids.to(args.device)
    model = Model(args.model, args.device)
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
