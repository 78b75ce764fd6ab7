#!/usr/bin/env python3
"""Writes tests/golden/levels.json: a small Llama whose far keys are thinned, computed in f64.

    tools/make_level_goldens.py        (package: numpy; seconds)

The whole model is computed as docs/long-prompts.md has it, with an explicit mask [T, T] for each layer and KV head: a key's place among
its part's keys is counted, and compared with the share of the level at which two parts meet. The script proves that the sets do not hang
on rounding, and that dense attention, a thinned first or last layer, and other sets change the logits by more than 1%.
"""

import json

import numpy as np

from goldens.float64 import GOLDEN, distance, encode, forward, load, turn
from goldens.generator import random_ids

MODEL, MORE_LAYERS = "smollm2", 2  # five layers: the first and the last are dense
COLUMN_STEP = 9  # of the logits of inner positions, each ninth column is kept
SINKS, RECENT = 4, 16
LEAST_GAP = 3e-5  # between the importances of the last kept and the first other key
CASES = [
    {"tokens": 192, "ranks": 2, "keep": [0.5], "groups": [2], "importance": "own"},
    {"tokens": 371, "ranks": 4, "keep": [0.6, 0.4], "groups": [2, 4], "importance": "own"},
    {"tokens": 331, "ranks": 4, "keep": [0.5], "groups": [4], "importance": "own", "drop_queries": True},
    {"tokens": 283, "ranks": 3, "keep": [0.5], "groups": [3], "importance": "probe"},
    {"tokens": 230, "ranks": 2, "keep": [0.4], "groups": [2], "importance": "previous"},
]


def parts_of(T, ranks):
    """(half, rank, positions) of each part, in order: rank r has T / ranks tokens, the first ones by one more."""
    whole = [T // ranks + (r < T % ranks) for r in range(ranks)]
    rows = [(0, r, whole[r] - whole[r] // 2) for r in range(ranks)] + [
        (1, r, whole[r] // 2) for r in reversed(range(ranks))]
    parts, at = [], 0
    for half, rank, n in rows:
        parts.append((half, rank, np.arange(at, at + n)))
        at += n
    return parts


def softmax(scores, seen):
    s = np.where(seen, scores, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Levels:
    """Attention of a case, with the smallest gap that its sets hang on."""

    def __init__(self, config, case, thins=None):
        self.config, self.case = config, case
        last = config["num_hidden_layers"] - 1
        self.thins = thins or (lambda layer: 0 < layer < last)
        self.parts = parts_of(case["tokens"], case["ranks"])
        self.before = None  # of the layer before, by KV head: mask and scores
        self.gap = np.inf

    def level(self, a, b):
        if a[0] != b[0]:
            return len(self.case["groups"]) - 1
        return next(v for v, g in enumerate(self.case["groups"]) if a[1] // g == b[1] // g)

    def importance(self, scores, part, before):
        """Of a part's keys, [keys]: the mean over the scoring queries that see a key."""
        T = scores.shape[-1]
        keys, causal = part[2], np.tri(T, dtype=bool)
        if self.case["importance"] == "previous":
            mask, scores = before
            rows = np.concatenate([p[2][-32:] for p in self.parts])
        else:
            rows = keys[-32:] if self.case["importance"] == "own" else self.parts[-1][2][-64:]
            mask = causal & np.isin(np.arange(T), keys)[None]
        seen = mask[rows]
        seen_any = seen.any(-1)
        paid = softmax(scores[:, rows[seen_any]], seen[seen_any][None]).sum(0)[:, keys]
        return paid.sum(0) / np.maximum(seen[seen_any][:, keys].sum(0), 1)

    def place(self, scores, part, before):
        """Each key's place among its part's keys: the prompt's first ones, the part's last ones, then by importance."""
        keys = part[2]
        n = len(keys)
        worth = self.importance(scores, part, before)
        sinks = min(SINKS, n) if keys[0] == 0 else 0
        recent = min(RECENT, n - sinks)
        rest = np.arange(sinks, n - recent)
        rest = rest[np.argsort(-worth[rest], kind="stable")]
        order = np.concatenate([np.arange(sinks), np.arange(n - 1, n - recent - 1, -1), rest])
        place = np.empty(n, int)
        place[order] = np.arange(n)
        for share in self.case["keep"]:
            at = int(np.ceil(share * n))
            if sinks + recent < at < n:
                a, b = worth[order[at - 1]], worth[order[at]]
                self.gap = min(self.gap, (a - b) / a)
        return place

    def mask(self, scores, before):
        """[T, T] of a KV head, whose group's scores are [G, T, T]."""
        T = scores.shape[-1]
        seen = np.tri(T, dtype=bool)
        places = [self.place(scores, p, before) for p in self.parts]
        for i, reader in enumerate(self.parts):
            for j in range(i):
                part = self.parts[j]
                share = self.case["keep"][self.level(reader, part)]
                kept = places[j] < np.ceil(share * len(part[2]))
                rows = np.ones(len(reader[2]), bool)
                if self.case.get("drop_queries"):
                    spared = RECENT + (SINKS if i == 0 else 0)
                    rows = places[i] < max(np.ceil(share * len(rows)), spared)
                seen[np.ix_(reader[2], part[2])] = rows[:, None] & kept[None]
        return seen

    def masks(self, layer, scores, kv_heads):
        """[kv_heads, T, T] of a layer whose scores are [heads, T, T], layers in order."""
        T, group = scores.shape[-1], len(scores) // kv_heads
        by_head = scores.reshape(kv_heads, group, T, T)
        seen = np.stack([self.mask(by_head[h], self.before[h] if self.before else None)
                         if self.thins(layer) else np.tri(T, dtype=bool) for h in range(kv_heads)])
        self.before = list(zip(seen, by_head))
        return seen

    def __call__(self, layer, q, k, v):
        T, theta = len(q), self.config["rope_theta"]
        group = q.shape[1] // k.shape[1]
        q, k = (turn(x, np.arange(T), theta) for x in (q, k))
        scores = np.einsum("qhd,khd->hqk", q, np.repeat(k, group, axis=1)) / np.sqrt(q.shape[-1])
        seen = np.repeat(self.masks(layer, scores, k.shape[1]), group, axis=0)
        return np.einsum("hqk,khd->qhd", softmax(scores, seen), np.repeat(v, group, axis=1))


def clear_prompt(seed, case, vocab, compute):
    """The first prompt with clear sets, and compute(ids, levels) of a case that `compute` has made for it."""
    for attempt in range(100):
        ids = random_ids(seed, f"levels_{case['tokens']}_{attempt}", case["tokens"], vocab)
        logits, levels = compute(ids)
        if levels.gap > LEAST_GAP:
            return ids, logits, levels
    raise AssertionError("no prompt with clear sets")


def committed(case, ids, logits, levels):
    """A case with its logits, [T, V]: all of the last position, some of inner ones and of the parts' first."""
    inner = sorted({*range(5, len(ids) - 1, 17), *(int(p[2][0]) for p in levels.parts[1:])})
    return {**case, "prompt": ids, "last": encode(logits[-1]), "inner_positions": inner,
            "inner": encode(logits[inner][:, ::COLUMN_STEP])}


def main():
    config, weights, seed = load(MODEL, MORE_LAYERS)
    last = config["num_hidden_layers"] - 1
    cases = []
    for case in CASES:
        def compute(ids):
            levels = Levels(config, case)
            return forward(config, weights, ids, levels), levels

        ids, want, levels = clear_prompt(seed, case, config["vocab_size"], compute)
        others = {"dense": Levels(config, case, lambda _: False),
                  "first thinned": Levels(config, case, lambda layer: layer < last),
                  "last thinned": Levels(config, case, lambda layer: layer > 0),
                  "fewer keys": Levels(config, {**case, "keep": [0.8 * s for s in case["keep"]]})}
        for name in ("own", "probe", "previous"):
            if name != case["importance"]:
                others[name] = Levels(config, {**case, "importance": name})
        for name, other in others.items():
            if name == "first thinned" and case["importance"] == "previous":
                continue  # nothing scored its keys
            far = distance(forward(config, weights, ids, other), want)
            print(f"{len(ids)} tokens, {name}: {far:.3f}; gap {levels.gap:.1e}")
            assert far > 0.01, name
        cases.append(committed(case, ids, want, levels))
    out = {"model": MODEL, "more_layers": MORE_LAYERS, "column_step": COLUMN_STEP, "cases": cases}
    (GOLDEN / "levels.json").write_text(json.dumps(out, indent=0) + "\n")


if __name__ == "__main__":
    main()
