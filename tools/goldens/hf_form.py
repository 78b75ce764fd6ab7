"""A random model as a Hugging Face folder, through PyPI safetensors."""

import json
import shutil

import numpy as np
import safetensors.torch
import torch

from . import generator

TORCH_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def stored(x, dtype):
    """x as a file of that dtype holds it."""
    return torch.from_numpy(x).to(TORCH_DTYPES[dtype])


def rounded(x, dtype):
    """The same, as f32."""
    return stored(x, dtype).float().numpy()


def shard_names(count):
    if count == 1:
        return ["model.safetensors"]
    return [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]


def write(folder, model, specs, seed, tokenizer):
    """Writes the folder; returns the names of its weight files. Shard i holds the i-th run of
    specs, as equal in number as can be (the first ones get one more)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(model.config, indent=1) + "\n")
    generation = {"bos_token_id": model.config["bos_token_id"],
                  "eos_token_id": model.config["eos_token_id"], "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(generation) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer / name, folder / name)
    names, weight_map, total = shard_names(model.shards), {}, 0
    runs = np.array_split(np.arange(len(specs)), model.shards)
    for name, run in zip(names, runs):
        tensors = {specs[i].name: stored(generator.random_tensor(seed, specs[i]), model.dtype)
                   for i in run}
        weight_map |= {key: name for key in tensors}
        total += sum(x.nbytes for x in tensors.values())
        safetensors.torch.save_file(tensors, folder / name, metadata={"format": "pt"})
    if model.shards > 1:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    return names
