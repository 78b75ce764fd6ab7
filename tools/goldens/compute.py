"""What Hugging Face's transformers computes: f32 on the CPU, attention implementation eager."""

import base64
import re

import numpy as np
import torch
from transformers import AutoModelForCausalLM

PROMPT_LENGTHS = (1, 7, 23, 67)
GREEDY_TOKENS = 24
COLUMN_STEP = 9  # of the logits of inner positions, each ninth column is kept


torch.set_num_threads(1)  # most of the models are too small for more


def load(folder, dtype=torch.float32):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager",
                                                 experts_implementation="eager")
    assert model.config._attn_implementation == "eager"
    return model.eval()


def joined_experts(weights):
    """The weights as transformers holds them: experts in one tensor, gate and up together."""
    joined, layers = {}, {}
    for name, x in weights.items():
        if match := re.fullmatch(r"(.*)\.(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(\w+)\.weight", name):
            layer, expert, part = match.groups()
            layers.setdefault(layer, {})[int(expert), part] = x
        else:
            joined[name.replace(".block_sparse_moe.", ".mlp.")] = x
    for layer, parts in layers.items():
        gate, up, down = ("w1", "w3", "w2") if (0, "w1") in parts else \
            ("gate_proj", "up_proj", "down_proj")
        count = len(parts) // 3
        joined[f"{layer}.mlp.experts.gate_up_proj"] = np.stack(
            [np.concatenate([parts[e, gate], parts[e, up]]) for e in range(count)])
        joined[f"{layer}.mlp.experts.down_proj"] = np.stack([parts[e, down] for e in range(count)])
    return joined


def set_weights(model, weights):
    """Replaces the weights by f32 arrays named as in the safetensors files."""
    weights = joined_experts(weights)
    parameters = dict(model.named_parameters())
    parameters |= {name: x for name, x in model.named_buffers() if name in weights}
    assert set(weights) == set(parameters), set(weights) ^ set(parameters)
    with torch.no_grad():
        for name, x in weights.items():
            parameters[name].copy_(torch.from_numpy(np.array(x)))


def logits(model, ids):
    """[L, V] in the model's dtype, without a KV cache."""
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0]


def encode(x):
    return base64.b64encode(np.asarray(x, "<f4").tobytes()).decode()


def relative_distance(x, y):
    return float((x - y).norm() / y.norm())


def top_two(row):
    """(best id, its logit, how far the second is below)."""
    values, ids = torch.topk(row, 2)
    return int(ids[0]), float(values[0]), float(values[0] - values[1])


def greedy(model, prompt, count):
    """(ids, top logits, gaps to the second) of `count` steps; the end token does not stop it."""
    ids, steps = list(prompt), []
    for _ in range(count):
        steps.append(top_two(logits(model, ids)[-1]))
        ids.append(steps[-1][0])
    return steps


def inner_positions(length):
    """Two positions before the last, where there are any."""
    return sorted({p for p in (length // 3, 2 * length // 3) if p < length - 1})


def case(model, prompt):
    rows = logits(model, prompt)
    columns = torch.arange(0, rows.shape[1], COLUMN_STEP)
    inner = inner_positions(len(prompt))
    steps = greedy(model, prompt, GREEDY_TOKENS)
    return {
        "prompt": prompt,
        "last": encode(rows[-1]),
        "inner_positions": inner,
        "inner": encode(rows[inner][:, columns]),
        "greedy": [step[0] for step in steps],
        "greedy_logits": [round(step[1], 4) for step in steps],
        "gaps": [round(step[2], 4) for step in steps],
    }
