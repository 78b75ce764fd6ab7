#!/usr/bin/env python3
"""Makes tests/golden: random small models of every family, and what Hugging Face computes on them.

  tools/make_goldens.py                         all random models
  tools/make_goldens.py --model qwen3_qk_norm   one of them
  tools/make_goldens.py --demo MODEL.gguf       the demo model

Needs the packages of tools/requirements.txt. Weights come from a hash (goldens/generator.py), so
that only their specification and checksums are committed; tests/golden/README.md says what each
file holds. Every form is written by its PyPI writer, read back and checked.
"""

import argparse
import importlib.metadata
import json
import logging
import os
import pathlib
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
os.environ["TQDM_DISABLE"] = "1"

try:
    import numpy as np
    import torch
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM

    from goldens import compute, demo, families, generator, gguf_form, hf_form, stand_in, tokenizer
except ImportError as error:
    sys.exit(f"make_goldens: needs the packages of tools/requirements.txt ({error})")

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIN_GAP = 0.02  # between the two best logits at every golden step
MIN_DISTINCT = 10  # tokens of a greedy continuation


def checksum(path):
    data = path.read_bytes()
    return {"bytes": len(data), "fnv1a64": f"{generator.fnv1a64(data):016x}"}


def lines(data, depth=2):
    """JSON with one line per entry down to `depth`, compact below."""
    def render(value, level):
        if level == 0 or not isinstance(value, (dict, list)) or not value:
            return json.dumps(value, ensure_ascii=False)
        inner = ",\n".join(
            f"{json.dumps(k)}: {render(v, level - 1)}" if isinstance(value, dict)
            else render(v, level - 1)
            for k, v in (value.items() if isinstance(value, dict) else zip(value, value)))
        return ("{\n%s\n}" if isinstance(value, dict) else "[\n%s\n]") % inner
    return render(data, depth) + "\n"


def versions():
    return {name: importlib.metadata.version(name)
            for name in ("torch", "transformers", "safetensors", "gguf", "numpy")}


def healthy(cases):
    return all(min(case["gaps"]) >= MIN_GAP for case in cases) and \
        all(len(set(case["greedy"])) >= MIN_DISTINCT for case in cases)


def prompts_of(seed, model):
    return [generator.random_ids(seed, f"prompt.{length}", length, model.vocab)
            for length in compute.PROMPT_LENGTHS]


def find_seed(model, specs, work, tokenizer_folder):
    """The first seed whose greedy continuations have healthy gaps: (seed, folder that
    transformers loads, loaded model, cases)."""
    for seed in range(1, 400):
        hf_form.write(work, model, specs, seed, tokenizer_folder)
        loaded = compute.load(stand_in.write(work, model, specs, seed))
        prompts = prompts_of(seed, model)
        first = compute.greedy(loaded, prompts[0], compute.GREEDY_TOKENS)
        if min(step[2] for step in first) < MIN_GAP:
            continue
        cases = [compute.case(loaded, prompt) for prompt in prompts]
        if healthy(cases):
            return seed, stand_in.write(work, model, specs, seed), loaded, cases
    sys.exit(f"{model.name}: no seed gives healthy gaps")


def rounding(work, loaded, prompt):
    """How far f32 is from f64 on the longest prompt: the noise below the golden logits."""
    exact = compute.logits(compute.load(work, torch.float64), prompt)
    return compute.relative_distance(compute.logits(loaded, prompt).double(), exact)


def without_window(model, work, loaded):
    """The model as its GGUF file has it: of a llama's window llama.cpp knows nothing."""
    if not (model.config.get("sliding_window") and model.config["model_type"] == "mistral"):
        return loaded
    other = work.with_name(work.name + ".full")
    shutil.copytree(work, other, dirs_exist_ok=True)
    (other / "config.json").write_text(json.dumps({**model.config, "sliding_window": None}))
    return compute.load(other)


def check_differences(model, work, loaded, prompt):
    expected = compute.logits(loaded, prompt)
    for change in model.must_matter:
        other = work.with_name(work.name + ".changed")
        shutil.copytree(work, other, dirs_exist_ok=True)
        (other / "config.json").write_text(json.dumps(stand_in.changed(model, change)))
        distance = compute.relative_distance(compute.logits(compute.load(other), prompt), expected)
        assert distance > 1e-2, f"{model.name}: {change} changes the logits by {distance} only"
        shutil.rmtree(other)


def make_model(model, out, scratch, tokenizer_folder):
    specs = families.tensor_specs(model)
    work = scratch / model.name
    seed, source, loaded, cases = find_seed(model, specs, work, tokenizer_folder)
    noise = rounding(source, loaded, cases[-1]["prompt"])
    assert noise < 2e-6, noise
    check_differences(model, source, loaded, cases[-1]["prompt"])
    weights = {
        "seed": seed, "dtype": model.dtype,
        "tensors": [[s.name, s.shape, s.base, s.scale] for s in specs],
        "files": {path.name: checksum(path) for path in sorted(work.glob("*.safetensors"))},
    }
    if model.gguf_forms:
        plan = {"keys": gguf_form.keys(model), "tensors": gguf_form.tensors(model, specs), "forms": {}}
    else:
        plan = {"keys": [], "tensors": [], "forms": {}, "none": model.no_gguf}
    golden = {"computed_by": "transformers, torch on the CPU, float32, attention eager",
              "versions": versions(), "f32_noise": float(f"{noise:.2g}"),
              "vocab": model.vocab, "column_step": compute.COLUMN_STEP,
              "exact": cases}
    loaded = without_window(model, work, loaded)
    exact = [compute.logits(loaded, case["prompt"]) for case in cases]
    for form in model.gguf_forms:
        path = scratch / f"{model.name}.{form}.gguf"
        held = gguf_form.write(path, plan, specs, seed, model, form)
        plan["forms"][form] = {"file_type": gguf_form.FILE_TYPES[form], **checksum(path)}
        if form == "mixed":
            plan["forms"][form]["formats"] = gguf_form.MIXED
        check_read_back(path, model, held)
        compute.set_weights(loaded, stand_in.weights_of(model, held))
        rows = [compute.logits(loaded, case["prompt"]) for case in cases]
        error = max(compute.relative_distance(x, y) for x, y in zip(rows, exact))
        if form == "f32":
            assert error == 0, error
            if model.config.get("sliding_window") and model.config["model_type"] == "mistral":
                golden[form] = {"format_error": 0.0, "cases": [
                    compute.case(loaded, case["prompt"]) for case in cases]}
            continue
        # The shortest prompt and one longer are enough for a block format.
        golden[form] = {"format_error": float(f"{error:.3g}"),
                        "cases": [compute.case(loaded, cases[i]["prompt"]) for i in (0, 2)]}
    target = out / model.name
    target.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "generation_config.json", "model.safetensors.index.json"):
        if (work / name).exists():
            (target / name).write_bytes((work / name).read_bytes())
    (target / "weights.json").write_text(lines(weights))
    (target / "gguf.json").write_text(lines(plan))
    (target / "golden.json").write_text(lines(golden, 3))
    gap = min(min(case["gaps"]) for case in cases)
    errors = {form: golden[form]["format_error"] for form in golden if form in model.gguf_forms}
    print(f"{model.name}: seed {seed}, f32 noise {noise:.1e}, smallest gap {gap:.3f}, "
          f"format errors {errors}", flush=True)


def check_read_back(path, model, held):
    """transformers' own GGUF reader, which undoes the row order and dequantizes, sees the weights
    that the goldens are computed with (it knows dense architectures but GLM, and tensors without
    bias)."""
    if model.config.get("mlp_bias") or families.experts_of(model.config) or \
            model.config["model_type"] in ("glm", "glm4", "chatglm"):
        return
    known = {}
    if model.config["model_type"] == "qwen3":  # its reader leaves the head size out
        known["config"] = AutoConfig.from_pretrained(path.parent / model.name)
    loaded = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name,
                                                  dtype=torch.float32, **known)
    seen = dict(loaded.named_parameters())
    for name, x in held.items():
        np.testing.assert_array_equal(seen[name].detach().numpy(), x, err_msg=f"{path.name} {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests" / "golden")
    parser.add_argument("--model", action="append", help="only this random model")
    parser.add_argument("--demo", type=pathlib.Path, help="only the demo model, from this GGUF file")
    parser.add_argument("--work", type=pathlib.Path, help="keep the written models in this folder")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    if args.demo:
        demo.make(args.demo, args.out)
        return
    names = [model.name for model in families.MODELS]
    if unknown := set(args.model or []) - set(names):
        parser.error(f"--model {', '.join(unknown)}: known are {', '.join(names)}")
    models = args.out / "models"
    tokenizer.write(models / "tokenizer")
    with tempfile.TemporaryDirectory() as folder:
        scratch = args.work or pathlib.Path(folder)
        scratch.mkdir(parents=True, exist_ok=True)
        for model in families.MODELS:
            if not args.model or model.name in args.model:
                make_model(model, models, scratch, models / "tokenizer")


if __name__ == "__main__":
    main()
