#!/usr/bin/env python3
"""Writes tests/golden/levels_eager.json: small models of several families whose far keys are thinned, by Hugging Face's eager attention.

    tools/make_eager_level_goldens.py        (packages of tools/requirements.txt; seconds)

transformers computes the models in f64, its eager attention with an explicit mask [heads, T, T] in each layer. The masks are
tools/make_level_goldens.py's, from the scores of transformers' own queries and keys. The script also proves that transformers agrees
with the committed logits of levels.json, and that dense attention changes the new ones by more than 1%.
"""

import json
import sys

import numpy as np
import torch
from goldens import compute
from goldens.float64 import GOLDEN, distance, load
from goldens.hf_form import rounded
from make_level_goldens import COLUMN_STEP, Levels, clear_prompt, committed
from transformers import AttentionInterface, AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

CASES = {
    "qwen2_untied": {"tokens": 211, "ranks": 3, "keep": [0.5], "groups": [3], "importance": "own"},
    "qwen3_qk_norm": {"tokens": 259, "ranks": 4, "keep": [0.6, 0.3], "groups": [2, 4], "importance": "own"},
    "llama3_gqa": {"tokens": 190, "ranks": 2, "keep": [0.4], "groups": [2], "importance": "previous"},
    "glm": {"tokens": 173, "ranks": 2, "keep": [0.5], "groups": [2], "importance": "probe"},
    "qwen3_moe": {"tokens": 251, "ranks": 3, "keep": [0.6], "groups": [3], "importance": "own"},
}
MORE_LAYERS = {"glm": 1}  # behind the model's own
AGREES = 1e-5  # transformers computes norms and softmax in f32


class Eager:
    """A model of transformers, and the masks of its next forward pass."""

    levels = None

    def __init__(self, config, weights):
        known = CONFIG_MAPPING[config["model_type"]](**{k: v for k, v in config.items() if k != "torch_dtype"})
        self.model = AutoModelForCausalLM.from_config(known, dtype=torch.float64, attn_implementation="levels",
                                                      experts_implementation="eager").eval()
        if config.get("tie_word_embeddings"):
            self.model.tie_weights()
        compute.set_weights(self.model, weights)

    def logits(self, ids, levels):
        Eager.levels = levels
        return compute.logits(self.model, ids).numpy()


def attention(module, query, key, value, attention_mask, scaling, **more):
    """Eager attention with the mask of the levels in place of the causal one."""
    group = query.shape[1] // key.shape[1]
    scores = query[0] @ key[0].repeat_interleave(group, 0).mT * scaling
    seen = torch.from_numpy(Eager.levels.masks(module.layer_idx, scores.numpy(), key.shape[1]))
    mask = torch.zeros(seen.shape, dtype=query.dtype).masked_fill(~seen, -torch.inf).repeat_interleave(group, 0)
    eager = sys.modules[type(module).__module__].eager_attention_forward
    return eager(module, query, key, value, mask[None], scaling=scaling, **more)


def model_of(name, more_layers):
    """Configuration, seed and model of transformers."""
    config, weights, seed = load(name, more_layers)
    dtype = json.loads((GOLDEN / f"models/{name}/weights.json").read_text())["dtype"]
    weights = {k: rounded(x.astype(np.float32), dtype) for k, x in weights.items()}
    return config, seed, Eager(config, weights)


def check_committed():
    golden = json.loads((GOLDEN / "levels.json").read_text())
    config, _, eager = model_of(golden["model"], golden["more_layers"])
    for case in golden["cases"]:
        levels = Levels(config, case)
        logits = eager.logits(case["prompt"], levels)
        again = committed(case, case["prompt"], logits, levels)
        far = max(distance(*(np.frombuffer(compute.base64.b64decode(c[k]), "<f4") for c in (again, case)))
                  for k in ("last", "inner"))
        print(f"levels.json, {case['tokens']} tokens: {far:.1e}")
        assert far < AGREES


def main():
    AttentionInterface.register("levels", attention)
    check_committed()
    models = []
    for name, case in CASES.items():
        config, seed, eager = model_of(name, MORE_LAYERS.get(name, 0))

        def computed(ids):
            levels = Levels(config, case)
            return eager.logits(ids, levels), levels

        ids, logits, levels = clear_prompt(seed, case, config["vocab_size"], computed)
        dense = eager.logits(ids, Levels(config, case, lambda _: False))
        print(f"{name}: dense {distance(dense, logits):.3f}; gap {levels.gap:.1e}")
        assert distance(dense, logits) > 0.01
        models.append({"model": name, "more_layers": MORE_LAYERS.get(name, 0), "column_step": COLUMN_STEP,
                       "cases": [committed(case, ids, logits, levels)]})
    (GOLDEN / "levels_eager.json").write_text(json.dumps(models, indent=0) + "\n")


if __name__ == "__main__":
    main()
