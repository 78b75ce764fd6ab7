"""tools/level_accuracy.py leaves out the keys that the engine does: those of tools/make_level_goldens.py, to whose logits
tests/golden/levels_test.cc holds the engine. Both compute in f64 here, the one blockwise with torch, the other with masks in numpy."""

import pathlib
import sys
import types
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
try:
    import numpy as np
    import torch
except ImportError as missing:
    print(f"Skipped\n{missing}")
    sys.exit(77)
import level_accuracy as tool
from make_level_goldens import Levels, softmax

LAYERS, HEADS, KV_HEADS, D, SEED = 5, 6, 2, 16, 11
CLEAR = 1e-9  # a relative gap of importances far above rounding
CASES = [  # parts of 46 and 47 keys; of 57 and 58, fewer than probes; of 175
    {"tokens": 371, "ranks": 4, "keep": [0.7, 0.5], "groups": [2, 4]},
    {"tokens": 230, "ranks": 2, "keep": [0.4], "groups": [2]},
    {"tokens": 700, "ranks": 2, "keep": [0.25], "groups": [2]},
]


class Recorded(tool.Thinned):
    """Notes the far keys of each part, in order of calls."""

    def far(self, i, orders):
        keys = super().far(i, orders)
        self.read.append((i, keys.numpy()))
        return keys


class Prompt:
    """Random queries, keys and values of each layer."""

    def __init__(self, case):
        random = np.random.default_rng(SEED)
        of = lambda heads, scale: scale * random.standard_normal((LAYERS, heads, case["tokens"], D))
        self.case, self.q, self.k, self.v = case, of(HEADS, 1.5), of(KV_HEADS, 1), of(KV_HEADS, 1)

    def by_tool(self, importance):
        """Outputs [heads, T, D] of each layer, and the far keys of each thinned layer's parts."""
        c = self.case
        attend = Recorded(types.SimpleNamespace(layers=LAYERS, D=D),
                          tool.Parts(c["tokens"], c["ranks"], c["groups"], c["keep"]), importance, 1, True)
        outputs, read = [], []
        for layer in range(LAYERS):
            attend.read = []
            q, k, v = (torch.from_numpy(x[layer]) for x in (self.q, self.k, self.v))
            outputs.append(attend(layer, q, k, v).numpy())
            read.append(attend.read)
        return outputs, read

    def by_masks(self, importance):
        levels = Levels({"num_hidden_layers": LAYERS}, {**self.case, "importance": importance})
        masks, outputs = [], []
        for layer, (q, k, v) in enumerate(zip(self.q, self.k, self.v)):
            k, v = (np.repeat(x, HEADS // KV_HEADS, axis=0) for x in (k, v))
            scores = np.einsum("hqd,hkd->hqk", q, k) / np.sqrt(D)
            masks.append(levels.masks(layer, scores, KV_HEADS))
            outputs.append(softmax(scores, np.repeat(masks[-1], HEADS // KV_HEADS, axis=0)) @ v)
        return levels, masks, outputs


def differing(read, levels, masks):
    """How many keys are in one set and not in the other, and how many are in the masks."""
    wrong = all_keys = 0
    for of_layer, mask in zip(read, masks):
        for i, keys in of_layer:
            rows = levels.parts[i][2]
            for h in range(KV_HEADS):
                got, want = set(keys[h].tolist()), set(np.flatnonzero(mask[h, rows[0], :rows[0]]).tolist())
                assert len(got) == len(keys[h])
                wrong += len(got ^ want)
                all_keys += len(want)
    return wrong, all_keys


class LevelAccuracy(unittest.TestCase):
    def setUp(self):
        self.addCleanup(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(1)

    def test_keys_are_the_engines(self):
        for case in CASES:
            prompt = Prompt(case)
            for importance in ("own", "probe", "previous"):
                with self.subTest(seed=SEED, importance=importance, **case):
                    outputs, read = prompt.by_tool(importance)
                    levels, masks, want = prompt.by_masks(importance)
                    self.assertGreater(levels.gap, CLEAR)
                    wrong, keys = differing(read, levels, masks)
                    self.assertEqual([len(x) for x in read], [0, *[2 * case["ranks"] - 1] * (LAYERS - 2), 0])
                    self.assertGreater(keys, 0)
                    self.assertEqual(wrong, 0)
                    for got, wanted in zip(outputs, want):
                        self.assertLess(np.abs(got - wanted).max(), 1e-12)

    def test_other_scores_are_noticed(self):
        """One query fewer that scores gives other sets, and so does each other importance."""
        prompt = Prompt(CASES[2])
        for importance, queries in ("own", "SCORING"), ("probe", "PROBES"), ("previous", "SCORING"):
            levels, masks, _ = prompt.by_masks(importance)
            for other in {"own", "probe", "previous"} - {importance}:
                self.assertGreater(differing(prompt.by_tool(other)[1], levels, masks)[0], 0)
            n = getattr(tool, queries)
            setattr(tool, queries, n - 1)
            self.addCleanup(setattr, tool, queries, n)
            with self.subTest(seed=SEED, importance=importance):
                self.assertGreater(differing(prompt.by_tool(importance)[1], levels, masks)[0], 0)
            setattr(tool, queries, n)


if __name__ == "__main__":
    unittest.main()
