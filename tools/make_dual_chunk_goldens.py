#!/usr/bin/env python3
"""Writes tests/golden/dual_chunk.json: a small Qwen2 with dual chunk attention, computed in f64.

    tools/make_dual_chunk_goldens.py        (package: numpy; seconds)

transformers has no dual chunk attention, so this script computes the whole model as its report has it (arXiv 2501.15383): keys turned
by p mod c, queries in three rotations by the distance of the key's chunk, a single softmax over all keys. Here n of the logits' scale is a
query's own length, p + 1. The script also proves that each part of the definition changes the logits by more than 1%.
"""

import base64
import json
import math
from pathlib import Path

import numpy as np

from goldens.generator import TensorSpec, random_ids, random_tensor

GOLDEN = Path(__file__).resolve().parents[1] / "tests/golden"
MODEL = "qwen2_untied"
COLUMN_STEP = 9  # of the logits of inner positions, each ninth column is kept
CASES = [
    {"chunk_size": 24, "local_size": 5, "original_max_position_embeddings": 24, "tokens": 131},
    {"chunk_size": 21, "local_size": 5, "original_max_position_embeddings": 32, "tokens": 68},
    {"chunk_size": 64, "local_size": 32, "tokens": 150},
]


def load():
    spec = json.loads((GOLDEN / f"models/{MODEL}/weights.json").read_text())
    tensors = [TensorSpec(*t) for t in spec["tensors"]]
    weights = {t.name: random_tensor(spec["seed"], t).astype(np.float64) for t in tensors}
    return json.loads((GOLDEN / f"models/{MODEL}/config.json").read_text()), weights, spec["seed"]


def turn(x, positions, theta):
    """x [T, H, D] by RoPE, pairs (i, i + D / 2), at `positions` [T]."""
    half = x.shape[-1] // 2
    angles = np.outer(positions, theta ** (-np.arange(half) / half))[:, None]
    cos, sin = np.cos(angles), np.sin(angles)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


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


def forward(config, w, ids, dual):
    """Logits [T, V]."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config["hidden_size"] // heads
    theta = config["rope_theta"]

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * w[name]

    x = w["model.embed_tokens.weight"][ids]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        h = norm(x, layer + "input_layernorm.weight")
        q, k, v = ((h @ w[f"{layer}self_attn.{n}_proj.weight"].T + w[f"{layer}self_attn.{n}_proj.bias"])
                   .reshape(len(ids), -1, dim) for n in "qkv")
        k, v = (np.repeat(t, heads // kv_heads, axis=1) for t in (k, v))
        o = attend(q, k, v, theta, dual).reshape(len(ids), -1)
        x = x + o @ w[layer + "self_attn.o_proj.weight"].T
        h = norm(x, layer + "post_attention_layernorm.weight")
        gate = h @ w[layer + "mlp.gate_proj.weight"].T
        up = h @ w[layer + "mlp.up_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[layer + "mlp.down_proj.weight"].T
    return norm(x, "model.norm.weight") @ w["lm_head.weight"].T


def encode(x):
    return base64.b64encode(np.asarray(x, "<f4").tobytes()).decode()


def main():
    config, weights, seed = load()
    cases = []
    for case in CASES:
        dual = {k: n for k, n in case.items() if k != "tokens"}
        T, c = case["tokens"], dual["chunk_size"] - dual["local_size"]
        ids = random_ids(seed, f"dual_chunk_{T}", T, config["vocab_size"])
        want = forward(config, weights, ids, dual)
        others = {"plain": None, "local": {**dual, "local_size": dual["local_size"] - 1},
                  "inter": {**dual, "inter": dual["chunk_size"] - 1}}
        if "original_max_position_embeddings" in dual:
            others["unscaled"] = {**dual, "original_max_position_embeddings": 0}
        for name, other in others.items():
            far = np.linalg.norm(forward(config, weights, ids, other)[-1] - want[-1]) / np.linalg.norm(want[-1])
            print(f"{T} tokens, {name}: {far:.3f}")
            assert far > 0.01, name
        size = dual["chunk_size"]
        same = forward(config, weights, ids[:size], None) - forward(config, weights, ids[:size], {
            **dual, "original_max_position_embeddings": 0})
        assert abs(same).max() < 1e-9, "up to the chunk size attention is plain"
        inner = sorted({at + d for at in (c, 2 * c, 3 * c, size, T // 2) for d in (-1, 0, 1) if at + d < T - 1})
        cases.append({"dual_chunk_attention_config": dual, "prompt": ids, "last": encode(want[-1]),
                      "inner_positions": inner, "inner": encode(want[inner][:, ::COLUMN_STEP])})
    out = {"model": MODEL, "column_step": COLUMN_STEP, "cases": cases}
    (GOLDEN / "dual_chunk.json").write_text(json.dumps(out, indent=0) + "\n")


if __name__ == "__main__":
    main()
