"""Forward passes of dense decoders in f64, for attention that transformers lacks (package: numpy)."""

import base64
import json
from pathlib import Path

import numpy as np

from .generator import TensorSpec, random_tensor

GOLDEN = Path(__file__).resolve().parents[2] / "tests/golden"


def load(model, more_layers=0):
    """Configuration, weights and seed of a random model; `more_layers` behind the last have layer 1's shapes and weights of
    their own."""
    spec = json.loads((GOLDEN / f"models/{model}/weights.json").read_text())
    config = json.loads((GOLDEN / f"models/{model}/config.json").read_text())
    tensors = [TensorSpec(*t) for t in spec["tensors"]]
    layers = config["num_hidden_layers"]
    first = [t for t in tensors if t.name.startswith("model.layers.1.")]
    for layer in range(layers, layers + more_layers):
        tensors += [TensorSpec(t.name.replace(".1.", f".{layer}.", 1), t.shape, t.base, t.scale) for t in first]
    config["num_hidden_layers"] = layers + more_layers
    weights = {t.name: random_tensor(spec["seed"], t).astype(np.float64) for t in tensors}
    return config, weights, spec["seed"]


def turn(x, positions, theta):
    """x [T, H, D] by RoPE, pairs (i, i + D / 2), at `positions` [T]."""
    half = x.shape[-1] // 2
    angles = np.outer(positions, theta ** (-np.arange(half) / half))[:, None]
    cos, sin = np.cos(angles), np.sin(angles)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def forward(config, w, ids, attend):
    """Logits [T, V]; attend(layer, q, k, v) of [T, heads, D], not yet turned, gives [T, heads, D]."""
    dim = config["hidden_size"] // config["num_attention_heads"]

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * w[name]

    x = w["model.embed_tokens.weight"][ids]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        h = norm(x, layer + "input_layernorm.weight")
        q, k, v = ((h @ w[f"{layer}self_attn.{n}_proj.weight"].T + w.get(f"{layer}self_attn.{n}_proj.bias", 0))
                   .reshape(len(ids), -1, dim) for n in "qkv")
        x = x + attend(i, q, k, v).reshape(len(ids), -1) @ w[layer + "self_attn.o_proj.weight"].T
        h = norm(x, layer + "post_attention_layernorm.weight")
        gate = h @ w[layer + "mlp.gate_proj.weight"].T
        up = h @ w[layer + "mlp.up_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[layer + "mlp.down_proj.weight"].T
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return norm(x, "model.norm.weight") @ head.T


def distance(x, y):
    return np.linalg.norm(x - y) / np.linalg.norm(y)


def encode(x):
    return base64.b64encode(np.asarray(x, "<f4").tobytes()).decode()
