"""Families that transformers does not have, as a family that it has with the same numbers: InternLM2 as
Llama, whose q, k and v it packs by KV head; chatglm as glm under other names."""

import json

import numpy as np
import safetensors.torch
import torch

from . import generator, hf_form

INTERNLM2_NAMES = {"tok_embeddings": "embed_tokens", "attention_norm": "input_layernorm",
                   "ffn_norm": "post_attention_layernorm", "attention.wo": "self_attn.o_proj",
                   "feed_forward.w1": "mlp.gate_proj", "feed_forward.w3": "mlp.up_proj",
                   "feed_forward.w2": "mlp.down_proj"}
CHATGLM_NAMES = {"transformer.embedding.word_embeddings": "model.embed_tokens",
                 "transformer.encoder.final_layernorm": "model.norm",
                 "transformer.output_layer": "lm_head",
                 "transformer.encoder.layers": "model.layers",
                 "self_attention.dense": "self_attn.o_proj",
                 "mlp.dense_h_to_4h": "mlp.gate_up_proj", "mlp.dense_4h_to_h": "mlp.down_proj"}


def renamed(name, table):
    for old, new in table.items():
        name = name.replace(f"{old}.", f"{new}.")
    return name


def split(name, x, sizes):
    """The parts of a packed tensor, by the names of q, k and v."""
    bounds = np.cumsum([0, *sizes])
    return {name.replace("PACKED", f"self_attn.{part}_proj"): x[bounds[i]:bounds[i + 1]]
            for i, part in enumerate("qkv")}


def internlm2(model, weights):
    heads, kv, dim = model.heads, model.kv_heads, model.head_dim
    made = {}
    for name, x in weights.items():
        if ".wqkv." not in name:
            made["lm_head.weight" if name == "output.weight" else renamed(name, INTERNLM2_NAMES)] = x
            continue
        groups = x.reshape(kv, heads // kv + 2, dim, *x.shape[1:])
        parts = (groups[:, :-2], groups[:, -2], groups[:, -1])
        rows = np.concatenate([part.reshape(-1, *x.shape[1:]) for part in parts])
        made |= split(name.replace("attention.wqkv", "PACKED"), rows,
                      (heads * dim, kv * dim, kv * dim))
    return made


def chatglm(model, weights):
    heads, kv, dim = model.heads, model.kv_heads, model.head_dim
    made = {}
    for name, x in weights.items():
        new = renamed(name.replace("self_attention.query_key_value", "PACKED"), CHATGLM_NAMES)
        if "PACKED" in new:
            made |= split(new, x, (heads * dim, kv * dim, kv * dim))
        else:
            made[new] = x
    return made


def internlm2_config(config):
    kept = {k: v for k, v in config.items() if k != "bias"}
    return {**kept, "architectures": ["LlamaForCausalLM"], "model_type": "llama",
            "attention_bias": config["bias"]}


def chatglm_config(config):
    return {"architectures": ["GlmForCausalLM"], "model_type": "glm",
            "hidden_size": config["hidden_size"], "intermediate_size": config["ffn_hidden_size"],
            "num_hidden_layers": config["num_layers"], "vocab_size": config["padded_vocab_size"],
            "num_attention_heads": config["num_attention_heads"],
            "num_key_value_heads": config["multi_query_group_num"]
            if config["multi_query_attention"] else config["num_attention_heads"],
            "head_dim": config["kv_channels"], "max_position_embeddings": config["seq_length"],
            "rms_norm_eps": config["layernorm_epsilon"], "attention_bias": config["add_qkv_bias"],
            "tie_word_embeddings": config["tie_word_embeddings"], "hidden_act": "silu", "pad_token_id": config["eos_token_id"],
            "rope_theta": 10000.0 * config["rope_ratio"], "partial_rotary_factor": 0.5,
            "bos_token_id": config["bos_token_id"], "eos_token_id": config["eos_token_id"],
            "torch_dtype": config["torch_dtype"]}


FAMILIES = {"internlm2": (internlm2_config, internlm2), "chatglm": (chatglm_config, chatglm)}


def write(work, model, specs, seed):
    """The folder that transformers loads in place of `work`: `work` itself for a family it has."""
    if model.config["model_type"] not in FAMILIES:
        return work
    as_config, as_weights = FAMILIES[model.config["model_type"]]
    folder = work.with_name(work.name + ".stand_in")
    folder.mkdir(parents=True, exist_ok=True)
    weights = {spec.name: hf_form.rounded(generator.random_tensor(seed, spec), model.dtype)
               for spec in specs}
    tensors = {name: torch.from_numpy(np.ascontiguousarray(x))
               for name, x in as_weights(model, weights).items()}
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(as_config(model.config)))
    return folder


def weights_of(model, weights):
    """Weights by the model's own names, as the model that transformers loads calls them."""
    known = FAMILIES.get(model.config["model_type"])
    return known[1](model, weights) if known else weights


def changed(model, change):
    """The configuration that transformers loads, with a change of the model's own."""
    config = {**model.config, **change}
    known = FAMILIES.get(config["model_type"])
    return known[0](config) if known else config
