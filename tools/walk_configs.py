#!/usr/bin/env python3
"""Compares Braid with transformers on random configurations of small random models, key by key of
docs/model-files.md: keys of every family, missing, null, in odd places, with values of other families.

  tools/walk_configs.py --braid build/release/bin/braid --count 400 --seed 1
  tools/walk_configs.py --goldens tests/golden/configs.json --count 20 --seed 7

For each configuration both must run, with log-probabilities (f32) that differ by 2e-5 at most, or
Braid must refuse it in one line. --goldens writes what transformers computes for configurations that
it runs, for tests/golden/configs_test.cc. Needs the packages of tools/requirements.txt.
"""

import argparse
import collections
import json
import logging
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
os.environ["TQDM_DISABLE"] = "1"

import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

from goldens import compute, generator  # noqa: E402
from goldens.families import ARCHITECTURES  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKENIZER = ROOT / "tests" / "golden" / "models" / "tokenizer"
WORST = 2e-5
PROMPT = "The quick brown fox jumps over the lazy dog and then goes home"
TOKENS = 16
GOLDEN_PROMPT = 41  # token ids
ABSENT = object()
ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn")
# What Braid refuses by name though transformers runs it, by docs/model-files.md.
REFUSED = ("is_causal is", "layer_types is", "RoPE scaling 'proportional'", "hidden_act '")


def pick(rng, *choices):
    return rng.choice(choices)


def rope_values(rng, kind, context):
    """The keys of rope_parameters for one rope_type, some of them missing, null or strange."""
    rope = {pick(rng, "rope_type", "rope_type", "type"): kind}
    original = pick(rng, 8, 16, 24, 32, context // 4)
    if kind in ("linear", "dynamic"):
        rope["factor"] = pick(rng, 1.0, 2.0, 3.7, 0.5, 8)
    elif kind == "llama3":
        rope |= {"factor": pick(rng, 8.0, 2.5), "low_freq_factor": pick(rng, 1.0, 0.5, 1),
                 "high_freq_factor": pick(rng, 4.0, 2, 1.5)}
    elif kind == "yarn":
        rope["factor"] = pick(rng, 4.0, 16.0, 2, 0.5, 1.0, None)
        optional = {"attention_factor": pick(rng, 1.0, 1.25, None, 0.9),
                    "beta_fast": pick(rng, 32, 8.0, 2, 0, None),
                    "beta_slow": pick(rng, 1, 0.25, 0, None), "truncate": pick(rng, True, False, None),
                    "mscale": pick(rng, 1.0, 0.707, 0, None),
                    "mscale_all_dim": pick(rng, 1.0, 0.5, 0, None)}
        rope |= {key: value for key, value in optional.items() if rng.random() < 0.4}
    elif kind == "proportional":
        rope["factor"] = 2.0
    if kind in ("llama3", "yarn") and rng.random() < 0.7:
        rope["original_max_position_embeddings"] = original
    if rng.random() < 0.1:
        rope["partial_rotary_factor"] = pick(rng, 1.0, 0.5)
    if rng.random() < 0.1:
        rope["mrope_section"] = [2, 1, 1]
    return rope


def add_rope(rng, config):
    """rope_theta, rope_scaling and rope_parameters, in the ways in which files have them."""
    context = config["max_position_embeddings"]
    kinds = ROPE_TYPES * 2 + ("yarn", "yarn", "yarn", "proportional")
    rope = rope_values(rng, rng.choice(kinds), context)
    theta = pick(rng, 10000.0, 500000.0, 1000, 100.0)
    place = rng.random()
    if place < 0.2:  # nothing but the base
        config["rope_scaling"] = pick(rng, None, {})
        config["rope_theta"] = theta
    elif place < 0.55:  # transformers 4
        config["rope_scaling"] = rope
        if rng.random() < 0.8:
            config["rope_theta"] = theta
    elif place < 0.8:  # transformers 5
        config["rope_parameters"] = rope | ({"rope_theta": theta} if rng.random() < 0.8 else {})
        if rng.random() < 0.3:
            config["rope_theta"] = pick(rng, 2000.0, 50.0)
    else:  # both
        config["rope_scaling"] = rope
        config["rope_parameters"] = {"rope_type": "default", "rope_theta": theta}
    if rng.random() < 0.15:
        config["original_max_position_embeddings"] = pick(rng, 8, 20, 64)
    if rng.random() < 0.1:
        config["partial_rotary_factor"] = pick(rng, 0.5, 1.0)


def random_config(rng, family):
    head_dim, kv_heads, group = pick(rng, 8, 16, 24, 32), pick(rng, 1, 2, 3), pick(rng, 1, 2, 3)
    heads = kv_heads * group
    layers = pick(rng, 1, 2, 3)
    window = pick(rng, 1, 5, 8, 17, 64)
    own_head_dim = rng.random() < 0.3 or family == "qwen3"
    hidden = heads * pick(rng, 8, 16, 24) if own_head_dim else heads * head_dim
    config = {
        "architectures": [ARCHITECTURES[family]], "model_type": family, "hidden_size": hidden,
        "intermediate_size": pick(rng, 40, 72, 96), "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "vocab_size": pick(rng, 272, 277, 320), "max_position_embeddings": pick(rng, 128, 256),
        "rms_norm_eps": pick(rng, 1e-5, 1e-6, 1e-3), "hidden_act": pick(
            rng, *["silu"] * 8, "swish", "gelu_pytorch_tanh", "gelu_new", "gelu"),
        "bos_token_id": 256, "eos_token_id": 258, "tie_word_embeddings": rng.random() < 0.3,
        "torch_dtype": "float32",
    }
    if own_head_dim:
        config["head_dim"] = head_dim
    elif rng.random() < 0.3:
        config["head_dim"] = pick(rng, head_dim, None)
    add_rope(rng, config)
    types = ("full_attention", "full_attention", "sliding_attention", "attention")
    optional = {
        "sliding_window": pick(rng, window, window, None), "use_sliding_window": rng.random() < 0.7,
        "max_window_layers": rng.randrange(layers + 1),
        "layer_types": pick(rng, None, [rng.choice(types) for _ in range(layers)]),
        "attention_bias": rng.random() < 0.5, "mlp_bias": rng.random() < 0.5,
        "qkv_bias": True, "use_qk_norm": True, "is_causal": pick(rng, True, False),
        "pretraining_tp": 2, "attention_dropout": 0.25, "pad_token_id": 5, "use_cache": False,
        "attention_chunk_size": 8, "final_logit_softcapping": 2.0, "attn_logit_softcapping": 2.0,
        "logits_scaling": 4.0, "logit_scale": 0.5, "attention_multiplier": 0.1,
        "residual_multiplier": 0.5, "embedding_multiplier": 3.0, "rope_interleaved": True,
        "rotary_pct": 0.5, "layer_norm_eps": 0.1, "hidden_activation": "relu", "is_decoder": False,
        "per_layer_config": {}, "dtype": "float32",
    }
    often = ("sliding_window", "use_sliding_window", "max_window_layers", "attention_bias", "mlp_bias")
    for key, value in optional.items():
        if rng.random() < (0.5 if key in often else 0.06):
            config[key] = value
    for key in ("architectures", "rms_norm_eps", "hidden_act", "tie_word_embeddings",
                "max_position_embeddings"):
        if rng.random() < 0.1:
            del config[key]
    if rng.random() < 0.1:
        config["num_key_value_heads"] = None
    return config


def tensor_specs(model):
    """Specifications for all tensors of a transformers model; a tied head is not one. Scales are so
    that f32 stays well within WORST of f64, and a key that is read wrongly does not."""
    hidden = model.config.hidden_size
    tied = model.config.tie_word_embeddings
    logit_scale = 2 * (3 / hidden) ** 0.5
    specs = []
    for name, tensor in model.state_dict().items():
        shape = list(tensor.shape)
        if name == "lm_head.weight" and tied:
            continue
        if name.endswith(".bias"):
            base, scale = 0.0, 0.5
        elif len(shape) == 1:
            base, scale = 1.0, 0.25
        elif "embed" in name or "lm_head" in name:
            base, scale = 0.0, logit_scale if tied or "lm_head" in name else 1.0
        else:
            base, scale = 0.0, (3 / shape[-1]) ** 0.5
        specs.append(generator.TensorSpec(name, shape, base, round(scale * 4096) / 4096))
    return specs


def write_folder(folder, config, seed):
    """Writes the model; returns its specifications. Raises what transformers raises."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(TOKENIZER / name, folder / name)
    specs = tensor_specs(AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)))
    save_file({s.name: torch.from_numpy(generator.random_tensor(seed, s)) for s in specs},
              folder / "model.safetensors", metadata={"format": "pt"})
    return specs


def braid_run(braid, folder):
    """(result, None) or (None, the message)."""
    done = subprocess.run(
        [braid, "run", "-m", folder, "-p", PROMPT, "-n", str(TOKENS), "--temperature", "0", "--json",
         "--logprobs", "5", "--ignore-eos", "--threads", "1"], capture_output=True, text=True,
        timeout=300)
    if done.returncode == 0:
        return json.loads(done.stdout), None
    return None, done.stderr.strip()


def worst_difference(result, model):
    prompt, output = result["prompt_ids"], result["output_ids"]
    rows = compute.logits(model, prompt + output[:-1])[len(prompt) - 1:]
    rows = torch.log_softmax(rows.double(), -1)
    worst = 0.0
    for row, token in zip(rows, result["logprobs"]):
        for entry in token["top"]:
            if entry["logprob"] is None:  # not a number
                return float("inf")
            worst = max(worst, abs(entry["logprob"] - float(row[entry["id"]])))
    return worst


def check_defaults():
    """The defaults of the first two tables of docs/model-files.md are those of transformers' classes."""
    text = (ROOT / "docs" / "model-files.md").read_text()
    columns, checked = [], 0
    for table in text[text.index("| config.json |"):].split("\n\n")[:2]:  # cells that differ, then cells of all columns
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        columns = columns or rows[0][1:-1]
        for key, *cells, _ in rows[2:]:
            checked += check_row(key.strip("`"), zip(columns, cells if len(cells) > 1 else cells * len(columns)))
    print(f"{checked} defaults are those of the classes")


def check_row(key, cells):
    """Compares the defaults that one row gives; returns how many it gave."""
    if key in ("rope_theta", "rope_scaling", "rope_parameters"):
        return 0
    defaults = [(family, cell.removesuffix(", may be null")) for family, cell in cells
                if cell and not cell.startswith(("read", "wanted", "refused"))]
    for family, cell in defaults:
        seen = type(AutoConfig.for_model(family)).__dataclass_fields__[key].default
        assert seen == json.loads(cell), f"{family}.{key}: docs say {cell}, the class {seen}"
    return len(defaults)


def walk(args, scratch):
    counts, refusals, differences = collections.Counter(), collections.Counter(), []
    kinds = collections.Counter()
    worst = 0.0
    for i in range(args.count):
        rng = random.Random(f"{args.seed}.{i}")
        family = list(ARCHITECTURES)[i % len(ARCHITECTURES)]
        config = random_config(rng, family)
        folder = scratch / "model"
        try:
            write_folder(folder, config, i)
            model = compute.load(folder)
            compute.logits(model, [1, 2, 3])
            theirs = None
        except Exception as error:  # noqa: BLE001 - whatever transformers raises is its refusal
            theirs = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"
        result, ours = braid_run(args.braid, folder)
        if result is None and (ours.count("\n") or not ours.startswith("braid: ")):
            differences.append(f"{i}: not refused in one line: {ours}")
        if theirs and result:
            counts["run by Braid alone"] += 1
            differences.append(f"{i}: transformers refuses it ({theirs}): {json.dumps(config)}")
        elif theirs:
            counts["refused by both"] += 1
        elif result is None:
            counts["refused by Braid alone"] += 1
            kind = re.sub(r"\d+", "N", ours.split(": ", 2)[-1])
            refusals[kind] += 1
            if not any(known in ours for known in REFUSED):
                differences.append(f"{i}: {ours}: {json.dumps(config)}")
        else:
            counts["run by both"] += 1
            kinds[f"{family} {model.config.rope_parameters['rope_type']}"] += 1
            difference = worst_difference(result, model)
            worst = max(worst, difference)
            if difference > WORST:
                differences.append(f"{i}: differs by {difference:.3g}: {json.dumps(config)}")
    print(f"{args.count} configurations, seed {args.seed}: {dict(counts)}")
    print(f"run by both: {dict(sorted(kinds.items()))}")
    print(f"refused by Braid alone: {dict(refusals)}")
    print(f"worst difference of a log-probability: {worst:.2g}, allowed is {WORST:.2g}")
    for line in differences:
        print(line)
    return not differences


def write_goldens(args, scratch):
    """The first configurations of each family and rope_type that transformers runs."""
    cases, seen, i = [], collections.Counter(), 0
    while len(cases) < args.count:
        rng = random.Random(f"{args.seed}.{i}")
        family = list(ARCHITECTURES)[i % len(ARCHITECTURES)]
        config, seed = random_config(rng, family), i
        i += 1
        try:
            specs = write_folder(scratch / "model", config, seed)
            model = compute.load(scratch / "model")
            prompt = generator.random_ids(seed, "prompt", GOLDEN_PROMPT, model.config.vocab_size)
            rows = compute.logits(model, prompt)
        except Exception:  # noqa: BLE001 - transformers refuses it
            continue
        kind = (family, model.config.rope_parameters["rope_type"])
        refused = kind[1] == "proportional" or config.get("is_causal") is False or \
            config.get("hidden_act") == "gelu"
        if refused or seen[kind] >= max(1, args.count // len(ROPE_TYPES) // len(ARCHITECTURES)):
            continue
        seen[kind] += 1
        cases.append({"config": config, "seed": seed,
                      "tensors": [[s.name, s.shape, s.base, s.scale] for s in specs],
                      "prompt": prompt, "last": compute.encode(rows[-1])})
    lines = ",\n".join(json.dumps(case) for case in cases)
    args.goldens.write_text(f"[\n{lines}\n]\n")
    print(f"{args.goldens}: {len(cases)} configurations, {dict(seen)}")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--braid", type=pathlib.Path, default=ROOT / "build/release/bin/braid")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--goldens", type=pathlib.Path, help="only write goldens, into this file")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        if args.goldens:
            passed = write_goldens(args, pathlib.Path(folder))
        else:
            check_defaults()
            passed = walk(args, pathlib.Path(folder))
    sys.exit(not passed)


if __name__ == "__main__":
    main()
