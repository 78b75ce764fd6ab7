#!/usr/bin/env python3
"""Writes tests/golden/dual_chunk.json: a small Qwen2 with dual chunk attention, computed in f64.

    tools/make_dual_chunk_goldens.py        (package: numpy; seconds)

transformers has no dual chunk attention, so this script computes the whole model as its report has it (arXiv 2501.15383): keys turned
by p mod c, queries in three rotations by the distance of the key's chunk, a single softmax over all keys. Here n of the logits' scale is a
query's own length, p + 1. The script also proves that each part of the definition changes the logits by more than 1%.
"""

import json
import math

import numpy as np

from goldens.float64 import GOLDEN, distance, encode, forward, load, turn
from goldens.generator import random_ids

MODEL = "qwen2_untied"
COLUMN_STEP = 9  # of the logits of inner positions, each ninth column is kept
CASES = [
    {"chunk_size": 24, "local_size": 5, "original_max_position_embeddings": 24, "tokens": 131},
    {"chunk_size": 21, "local_size": 5, "original_max_position_embeddings": 32, "tokens": 68},
    {"chunk_size": 64, "local_size": 32, "tokens": 150},
]


def attend(q, k, v, theta, dual):
    """q [T, H, D] not yet turned, k and v [T, H, D] -> [T, H, D]."""
    T = len(q)
    p = np.arange(T)
    if dual is None:
        scores = np.einsum("qhd,khd->hqk", turn(q, p, theta), turn(k, p, theta))
        growth = np.ones(T)
    else:
        size = dual["chunk_size"]
        c = size - dual["local_size"]
        k = turn(k, p % c, theta)
        by_distance = [np.einsum("qhd,khd->hqk", turn(q, at, theta), k) for at in (
            p % c, np.minimum(p % c + c, size), np.full(T, dual.get("inter", size)))]
        distance = np.minimum(p[:, None] // c - p[None] // c, 2)
        scores = np.select([distance == 0, distance == 1, distance == 2], by_distance)
        original = dual.get("original_max_position_embeddings", 0)
        growth = np.maximum(1, 0.1 * np.log((p + 1) / original) + 1) if original else np.ones(T)
    scores = scores * (growth[:, None] ** 2 / math.sqrt(q.shape[-1]))
    scores = np.where(p[None] <= p[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), v)


def logits(config, w, ids, dual):
    """[T, V]."""
    heads, theta = config["num_attention_heads"], config["rope_theta"]

    def over_keys(_, q, k, v):
        k, v = (np.repeat(t, heads // t.shape[1], axis=1) for t in (k, v))
        return attend(q, k, v, theta, dual)

    return forward(config, w, ids, over_keys)


def main():
    config, weights, seed = load(MODEL)
    cases = []
    for case in CASES:
        dual = {k: n for k, n in case.items() if k != "tokens"}
        T, c = case["tokens"], dual["chunk_size"] - dual["local_size"]
        ids = random_ids(seed, f"dual_chunk_{T}", T, config["vocab_size"])
        want = logits(config, weights, ids, dual)
        others = {"plain": None, "local": {**dual, "local_size": dual["local_size"] - 1},
                  "inter": {**dual, "inter": dual["chunk_size"] - 1}}
        if "original_max_position_embeddings" in dual:
            others["unscaled"] = {**dual, "original_max_position_embeddings": 0}
        for name, other in others.items():
            far = distance(logits(config, weights, ids, other)[-1], want[-1])
            print(f"{T} tokens, {name}: {far:.3f}")
            assert far > 0.01, name
        size = dual["chunk_size"]
        same = logits(config, weights, ids[:size], None) - logits(config, weights, ids[:size], {
            **dual, "original_max_position_embeddings": 0})
        assert abs(same).max() < 1e-9, "up to the chunk size attention is plain"
        inner = sorted({at + d for at in (c, 2 * c, 3 * c, size, T // 2) for d in (-1, 0, 1) if at + d < T - 1})
        cases.append({"dual_chunk_attention_config": dual, "prompt": ids, "last": encode(want[-1]),
                      "inner_positions": inner, "inner": encode(want[inner][:, ::COLUMN_STEP])})
    out = {"model": MODEL, "column_step": COLUMN_STEP, "cases": cases}
    (GOLDEN / "dual_chunk.json").write_text(json.dumps(out, indent=0) + "\n")


if __name__ == "__main__":
    main()
