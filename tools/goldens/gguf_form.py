"""A random model as a GGUF file, through PyPI gguf, with the keys, names and row order that
llama.cpp's converter gives it.

The plan (keys and tensors in order) is data: it goes into gguf.json, from which
tests/golden/support/gguf_writer.cc writes the same bytes.
"""

import math

import gguf
import numpy as np

from . import blocks, families, generator, hf_form, tokenizer

FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q4_k": 14,
              "mixed": 15, "q5_k": 16, "q6_k": 18, "bf16": 32}
# The form "mixed": formats of one file, as a Q4_K_M file mixes them, and more.
MIXED = {"token_embd": "q5_0", "attn_q": "q4_k", "attn_k": "q8_0", "attn_v": "q6_k",
         "attn_output": "q5_k", "ffn_gate": "q4_1", "ffn_up": "q5_1", "ffn_down": "q6_k",
         "output": "f16", "ffn_gate_exps": "q4_1", "ffn_up_exps": "q5_1", "ffn_down_exps": "q6_k"}
ARCHITECTURES = {"mistral": "llama", "mixtral": "llama", "qwen2_moe": "qwen2moe",
                 "qwen3_moe": "qwen3moe", "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2",
                 "glm4_moe_lite": "deepseek2", "glm": "chatglm"}  # others as model_type
LAYER_NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q",
               "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
               "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
               "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm",
               "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
               "post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm",
               "mlp.gate_up_proj": "ffn_up", "self_attention.query_key_value": "attn_qkv",
               "self_attention.dense": "attn_output", "mlp.dense_h_to_4h": "ffn_up",
               "mlp.dense_4h_to_h": "ffn_down", "block_sparse_moe.gate": "ffn_gate_inp", "mlp.gate": "ffn_gate_inp",
               "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
               "mlp.shared_expert.up_proj": "ffn_up_shexp",
               "mlp.shared_expert.down_proj": "ffn_down_shexp",
               "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
               "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
               "mlp.shared_experts.up_proj": "ffn_up_shexp",
               "mlp.shared_experts.down_proj": "ffn_down_shexp",
               "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
               "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
               "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b"}
EXPERT_PARTS = {"w1": "gate", "w3": "up", "w2": "down", "gate_proj": "gate", "up_proj": "up",
                "down_proj": "down"}
TOP_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
             "transformer.embedding.word_embeddings": "token_embd",
             "transformer.encoder.final_layernorm": "output_norm",
             "transformer.output_layer": "output"}


def gguf_name(hf_name):
    stem, kind = hf_name.rsplit(".", 1)
    if stem in TOP_NAMES:
        return f"{TOP_NAMES[stem]}.{kind}"
    layer, rest = stem.split(".layers.", 1)[1].split(".", 1)
    if kind == "e_score_correction_bias":
        return f"blk.{layer}.exp_probs_b.bias"
    if ".experts." in rest:
        return f"blk.{layer}.ffn_{EXPERT_PARTS[rest.rsplit('.', 1)[1]]}_exps.{kind}"
    return f"blk.{layer}.{LAYER_NAMES[rest]}.{kind}"


def rope(model):
    config = model.config
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def llama3_factors(model):
    """What llama.cpp divides each rotary frequency by: f32 [head_dim / 2]."""
    scaling = rope(model)
    theta = scaling.get("rope_theta", model.config.get("rope_theta"))
    original, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    factors = []
    for i in range(0, model.head_dim, 2):
        wavelength = 2 * math.pi * theta ** (i / model.head_dim)
        if wavelength < original / high:
            factors.append(1.0)
        elif wavelength > original / low:
            factors.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def latent_keys(model, arch):
    """What deepseek2 has beside the rest: heads, and a router that the file describes."""
    config = model.config
    rank, nope, rope_dim, value = (config[key] for key in (
        "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    width = (rank + rope_dim, rank) if model.split_latent else (nope + rope_dim, value)
    found = [[f"{arch}.attention.kv_lora_rank", "u32", rank],
             [f"{arch}.rope.dimension_count", "u32", rope_dim],
             [f"{arch}.attention.key_length", "u32", width[0]],
             [f"{arch}.attention.value_length", "u32", width[1]]]
    if model.split_latent:
        found += [[f"{arch}.attention.key_length_mla", "u32", nope + rope_dim],
                  [f"{arch}.attention.value_length_mla", "u32", value]]
    if config["q_lora_rank"]:
        found += [[f"{arch}.attention.q_lora_rank", "u32", config["q_lora_rank"]]]
    v2 = config["model_type"] == "deepseek_v2"
    groups = config.get("topk_method", "") != "greedy"
    return found + [
        [f"{arch}.expert_shared_count", "u32", config["n_shared_experts"]],
        [f"{arch}.leading_dense_block_count", "u32", config.get("first_k_dense_replace", 1)],
        [f"{arch}.expert_weights_scale", "f32", config.get("routed_scaling_factor", 1.0)],
        [f"{arch}.expert_weights_norm", "bool", not v2 and config["norm_topk_prob"]],
        [f"{arch}.expert_gating_func", "u32", 1 if v2 else 2],
        [f"{arch}.expert_group_count", "u32", config["n_group"] if groups else 1],
        [f"{arch}.expert_group_used_count", "u32", config["topk_group"] if groups else 1],
    ]


def keys(model):
    """[[key, type, value]] in file order. The values "tokens", "token_types" and "merges" of type
    "tokenizer" stand for the arrays of tokenizer.py; general.file_type is the form's."""
    config, scaling = model.config, rope(model)
    arch = ARCHITECTURES.get(config["model_type"], config["model_type"])
    theta = scaling.get("rope_theta", config.get("rope_theta"))
    if "rope_ratio" in config:
        theta = 10000.0 * config["rope_ratio"]
    found = [
        ["general.architecture", "string", arch],
        ["general.type", "string", "model"],
        ["general.name", "string", model.name],
        [f"{arch}.block_count", "u32", model.first_of("num_hidden_layers", "num_layers")],
        [f"{arch}.context_length", "u32", model.first_of("max_position_embeddings", "seq_length")],
        [f"{arch}.embedding_length", "u32", config["hidden_size"]],
        [f"{arch}.feed_forward_length", "u32",
         model.first_of("intermediate_size", "ffn_hidden_size")],
        [f"{arch}.attention.head_count", "u32", model.heads],
    ]
    latent, split = "kv_lora_rank" in config, model.split_latent
    heads = 1 if latent and split else model.kv_heads
    found += [[f"{arch}.attention.head_count_kv", "u32", heads]]
    if latent:
        found += latent_keys(model, arch)
    if "yarn" in (scaling.get("rope_type"), scaling.get("type")):
        found += [
            [f"{arch}.rope.scaling.type", "string", "yarn"],
            [f"{arch}.rope.scaling.factor", "f32", scaling["factor"]],
            [f"{arch}.rope.scaling.original_context_length", "u32",
             scaling["original_max_position_embeddings"]],
        ]
    found += [
        [f"{arch}.rope.freq_base", "f32", theta],
        # The converter's f32 of 1e-5; the exact decimal is the same number here and in C++.
        [f"{arch}.attention.layer_norm_rms_epsilon", "f32",
         model.first_of("rms_norm_eps", "layernorm_epsilon")],
    ]
    if "mscale_all_dim" in scaling:
        found += [[f"{arch}.rope.scaling.yarn_log_multiplier", "f32",
                   0.1 * scaling["mscale_all_dim"]]]
    if families.experts_of(config):
        found += [[f"{arch}.expert_count", "u32", families.experts_of(config)],
                  [f"{arch}.expert_used_count", "u32", config["num_experts_per_tok"]]]
    if "moe_intermediate_size" in config:
        found += [[f"{arch}.expert_feed_forward_length", "u32", config["moe_intermediate_size"]]]
    if "shared_expert_intermediate_size" in config:
        found += [[f"{arch}.expert_shared_feed_forward_length", "u32",
                   config["shared_expert_intermediate_size"]]]
    if "head_dim" in config or "kv_channels" in config:
        found += [[f"{arch}.attention.key_length", "u32", model.head_dim],
                  [f"{arch}.attention.value_length", "u32", model.head_dim]]
    if arch in ("chatglm", "glm4"):
        found += [[f"{arch}.rope.dimension_count", "u32", model.head_dim // 2]]
    found += [["general.file_type", "file_type", 0]]
    if arch == "llama":
        found += [["llama.vocab_size", "u32", model.vocab],
                  ["llama.rope.dimension_count", "u32", model.head_dim]]
    if config["model_type"] == "mistral":
        found += [["llama.attention.sliding_window", "u32", config["sliding_window"]]]
    found += [
        ["general.quantization_version", "u32", 2],
        ["tokenizer.ggml.model", "string", "gpt2"],
        ["tokenizer.ggml.pre", "string", "gpt-2"],
        ["tokenizer.ggml.tokens", "tokenizer", "tokens"],
        ["tokenizer.ggml.token_type", "tokenizer", "token_types"],
        ["tokenizer.ggml.merges", "tokenizer", "merges"],
        ["tokenizer.ggml.bos_token_id", "u32", config["bos_token_id"]],
        ["tokenizer.ggml.eos_token_id", "u32", config["eos_token_id"]],
        ["tokenizer.ggml.add_bos_token", "bool", False],
        ["tokenizer.chat_template", "string", tokenizer.CHAT_TEMPLATE],
    ]
    return found


def tensors(model, specs):
    """[{name, source}] in file order. permute_heads: rows of each head go from halves to pairs, the
    rotary pairing of llama.cpp's llama. values: f32 data that has no source. sources: tensors that
    become one, of a dimension more. heads: rows of each
    head's part of the source, a matrix for each head, transposed or not. flat: without its first dimension, which is 1."""
    interleaved = model.config["model_type"] in ("llama", "mistral", "mixtral")
    found = []
    if rope(model).get("rope_type") == "llama3":
        found.append({"name": "rope_freqs.weight",
                      "values": [float(x) for x in llama3_factors(model)]})
    for spec in specs:
        entry = {"name": gguf_name(spec.name), "source": spec.name}
        if ".kv_b_proj." in spec.name and model.split_latent:
            nope, value = model.config["qk_nope_head_dim"], model.config["v_head_dim"]
            stem = entry["name"].removesuffix("kv_b.weight")
            for part, rows, turned in (("k_b", [0, nope], True), ("v_b", [nope, nope + value], False)):
                found.append({"name": f"{stem}{part}.weight", "source": spec.name,
                              "heads": model.heads, "rows": rows, "transposed": turned})
            continue
        if ".experts." in spec.name:
            known = next((e for e in found if e["name"] == entry["name"]), None)
            if known:
                known["sources"].append(spec.name)
            else:
                found.append({"name": entry["name"], "sources": [spec.name]})
            continue
        if "shared_expert_gate" in spec.name:
            entry["flat"] = True
        if interleaved and ".q_proj." in spec.name:
            entry["permute_heads"] = model.heads
        if interleaved and ".k_proj." in spec.name:
            entry["permute_heads"] = model.kv_heads
        found.append(entry)
    return found


def permute(x, heads):
    rows = x.reshape(heads, 2, x.shape[0] // heads // 2, -1)
    return rows.swapaxes(1, 2).reshape(x.shape)


def unpermute(x, heads):
    rows = x.reshape(heads, x.shape[0] // heads // 2, 2, -1)
    return rows.swapaxes(1, 2).reshape(x.shape)


def format_of(name, dims, form):
    """The block format of one tensor: vectors and routers stay f32, "mixed" goes by the name's
    middle part."""
    if dims == 1 or ".ffn_gate_inp." in name:
        return "f32"
    return MIXED[name.split(".")[-2]] if form == "mixed" else form


def write(path, plan, specs, seed, model, form):
    """Writes the file; returns what it holds by Hugging Face name, dequantized by PyPI gguf."""
    arch = next(value for key, _, value in plan["keys"] if key == "general.architecture")
    writer = gguf.GGUFWriter(path, arch)
    tokens, types = tokenizer.gguf_tokens(model.vocab)
    arrays = {"tokens": tokens, "token_types": types,
              "merges": [" ".join(pair) for pair in tokenizer.MERGES]}
    add = {"string": writer.add_string, "u32": writer.add_uint32, "f32": writer.add_float32,
           "bool": writer.add_bool}
    for key, kind, value in plan["keys"]:
        if key == "general.architecture":
            continue  # the writer put it first by itself
        if kind == "tokenizer":
            writer.add_array(key, arrays[value])
        elif kind == "file_type":
            writer.add_uint32(key, FILE_TYPES[form])
        else:
            add[kind](key, value)
    by_name, held = {spec.name: spec for spec in specs}, {}
    for entry in plan["tensors"]:
        if "values" in entry:
            writer.add_tensor(entry["name"], np.array(entry["values"], np.float32))
            continue
        parts = [hf_form.rounded(generator.random_tensor(seed, by_name[source]), model.dtype)
                 for source in entry.get("sources", [entry.get("source")])]
        x = np.stack(parts) if "sources" in entry else parts[0][0] if "flat" in entry else parts[0]
        if "rows" in entry:
            begin, end = entry["rows"]
            x = x.reshape(entry["heads"], -1, x.shape[-1])[:, begin:end]
            x = np.ascontiguousarray(x.swapaxes(1, 2) if entry["transposed"] else x)
        heads = entry.get("permute_heads")
        if heads:
            x = permute(x, heads)
        name = format_of(entry["name"], x.ndim, form)
        if name == "f32":
            writer.add_tensor(entry["name"], np.ascontiguousarray(x))
            y = x
        else:
            packed = blocks.quantize(np.ascontiguousarray(x.reshape(-1, x.shape[-1])), name)
            y = blocks.dequantize(packed, name).reshape(x.shape)
            packed = packed.reshape(*x.shape[:-1], -1)
            writer.add_tensor(entry["name"], packed, raw_dtype=blocks.TYPES[name])
        if "rows" in entry:
            part = y.swapaxes(1, 2) if entry["transposed"] else y
            if entry["source"] in held:  # k_b came before v_b
                part = np.concatenate([held[entry["source"]], part], axis=1)
                part = part.reshape(-1, part.shape[-1])
            held[entry["source"]] = part
        elif "sources" in entry:
            held |= dict(zip(entry["sources"], y))
        else:
            y = y[None] if "flat" in entry else y
            held[entry["source"]] = unpermute(y, heads) if heads else y
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return held
