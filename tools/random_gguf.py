#!/usr/bin/env python3
"""Writes some layers of a model as a GGUF file with random weights, to compare speeds on one file.
Needs the packages gguf and numpy of tools/requirements.txt.

  tools/random_gguf.py configs/qwen3-30b-a3b.json --layers 2 --type q4_k -o OUT.gguf
  tools/random_gguf.py configs/llama-2-7b.json --layers 32 --type f16 -o OUT.gguf

CONFIG: a llama, mixtral, qwen3_moe or deepseek_v2 config.json. Types: q4_k, q8_0, f16, bf16. Rows
that are no multiple of 256 take q5_0 beside q4_k, as llama-quantize does. Blocks have random bytes
and small scales; f16 and bf16 repeat some million normal numbers; norms are ones, routers are
normal numbers in f32. Tokens are bytes, and names for the rest of the vocabulary.
llama.cpp reads deepseek2 files without q_lora_rank at 26 or 27 layers alone: for other numbers queries
are two products of rank 1,536, as in DeepSeek-V2.
"""

import argparse
import json
import math
import pathlib
import sys

import numpy
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from goldens import tokenizer

STEP = 8e-5  # between neighbouring codes, times a sub-scale of about 32 in q4_k
QUERY_RANK = 1536
NORMALS = (1 << 22) + 1  # odd: no two rows begin alike
ARCHITECTURES = {"LlamaForCausalLM": "llama", "MixtralForCausalLM": "llama",
                 "Qwen3MoeForCausalLM": "qwen3moe", "DeepseekV2ForCausalLM": "deepseek2"}
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")


class Repeated:
    """As a writer sees it, an array of bytes that repeat a pattern; it takes no memory of its own."""

    dtype = numpy.dtype(numpy.uint8)

    def __init__(self, pattern, shape):
        self.pattern, self.shape = pattern, shape
        self.nbytes = math.prod(shape)

    def tofile(self, file):
        for begin in range(0, self.nbytes, self.pattern.nbytes):
            file.write(self.pattern[: self.nbytes - begin])


class File:
    def __init__(self, path, config, kind, layers, seed):
        self.config, self.kind, self.layers = config, kind, layers
        self.arch = ARCHITECTURES[config["architectures"][0]]
        self.random = numpy.random.default_rng(seed)
        self.writer = GGUFWriter(path, self.arch)
        self.experts = next((config[name] for name in EXPERTS if name in config), 0)
        self.expert_width = config.get("moe_intermediate_size") or config["intermediate_size"]
        if kind in ("f16", "bf16"):
            normals = self.random.normal(0, .02, NORMALS).astype(numpy.float32)
            halves = (normals.astype(numpy.float16) if kind == "f16" else
                      (normals.view(numpy.uint32) >> 16).astype(numpy.uint16))
            self.normals = halves.view(numpy.uint8)

    def scales(self, blocks, value):
        return numpy.full((blocks, 1), value, numpy.float16).view(numpy.uint8)

    def matrix(self, name, *shape):
        """A tensor of random blocks, [..., rows, columns]."""
        *outer, columns = shape
        if self.kind in ("f16", "bf16"):
            return self.plain(name, shape)
        kind = self.kind if columns % 256 == 0 or self.kind != "q4_k" else "q5_0"
        size, code_bytes = {"q4_k": (256, 140), "q8_0": (32, 32), "q5_0": (32, 20)}[kind]
        blocks = int(numpy.prod(outer)) * columns // size
        codes = self.random.integers(0, 256, (blocks, code_bytes), numpy.uint8)
        parts = [self.scales(blocks, {"q4_k": STEP, "q8_0": STEP * 4, "q5_0": STEP * 32}[kind])]
        if kind == "q4_k":
            parts.append(self.scales(blocks, STEP * 7.5))  # of the minima: about zero on average
        data = numpy.concatenate([*parts, codes], axis=1).reshape(*outer, -1)
        self.writer.add_tensor(f"{name}.weight", data, raw_dtype=getattr(Type, kind.upper()))

    def plain(self, name, shape):
        data = Repeated(self.normals, (*shape[:-1], 2 * shape[-1]))
        self.writer.add_tensor(f"{name}.weight", data, raw_dtype=getattr(Type, self.kind.upper()))

    def norm(self, name, width):
        self.writer.add_tensor(f"{name}.weight", numpy.ones(width, numpy.float32))

    def router(self, name, experts, width):
        x = self.random.normal(0, 4 / width ** 0.5, (experts, width))
        self.writer.add_tensor(f"{name}.weight", x.astype(numpy.float32))

    def keys(self):
        c, w, a = self.config, self.writer, self.arch
        w.add_block_count(self.layers)
        w.add_context_length(c["max_position_embeddings"])
        w.add_embedding_length(c["hidden_size"])
        w.add_feed_forward_length(c["intermediate_size"])
        w.add_head_count(c["num_attention_heads"])
        w.add_rope_freq_base(c["rope_theta"])
        w.add_layer_norm_rms_eps(c["rms_norm_eps"])
        if self.experts:
            w.add_expert_count(self.experts)
            w.add_expert_used_count(c["num_experts_per_tok"])
            w.add_expert_feed_forward_length(self.expert_width)
        w.add_vocab_size(c["vocab_size"])
        if a == "deepseek2":
            self.latent_keys()
        else:
            w.add_head_count_kv(c["num_key_value_heads"])
            w.add_key_length(self.head_dim())
            w.add_value_length(self.head_dim())
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("gpt-2")
        tokens, types = tokenizer.gguf_tokens(c["vocab_size"])
        w.add_token_list(tokens)
        w.add_token_types(types)
        w.add_token_merges([" ".join(pair) for pair in tokenizer.MERGES])
        w.add_bos_token_id(0)
        w.add_eos_token_id(1)
        w.add_add_bos_token(False)

    def head_dim(self):
        return self.config.get("head_dim") or (self.config["hidden_size"] //
                                               self.config["num_attention_heads"])

    def latent_keys(self):
        c, w = self.config, self.writer
        rank, rope = c["kv_lora_rank"], c["qk_rope_head_dim"]
        w.add_head_count_kv(1)
        w.add_kv_lora_rank(rank)
        if self.layers not in (26, 27):
            w.add_q_lora_rank(QUERY_RANK)
        w.add_rope_dimension_count(rope)
        w.add_key_length(rank + rope)
        w.add_value_length(rank)
        w.add_key_length_mla(c["qk_nope_head_dim"] + rope)
        w.add_value_length_mla(c["v_head_dim"])
        w.add_expert_shared_count(c["n_shared_experts"])
        w.add_leading_dense_block_count(c["first_k_dense_replace"])
        w.add_expert_weights_scale(c["routed_scaling_factor"])
        w.add_expert_weights_norm(False)
        w.add_uint32(f"{self.arch}.expert_gating_func", 1)

    def attention(self, layer):
        c, C, H = self.config, self.config["hidden_size"], self.config["num_attention_heads"]
        if self.arch != "deepseek2":
            D, kv = self.head_dim(), c["num_key_value_heads"]
            for part, rows in (("q", H * D), ("k", kv * D), ("v", kv * D)):
                self.matrix(f"{layer}.attn_{part}", rows, C)
            if self.arch == "qwen3moe":
                self.norm(f"{layer}.attn_q_norm", D)
                self.norm(f"{layer}.attn_k_norm", D)
            return self.matrix(f"{layer}.attn_output", C, H * D)
        nope, rope, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
        rank = c["kv_lora_rank"]
        if self.layers in (26, 27):
            self.matrix(f"{layer}.attn_q", H * (nope + rope), C)
        else:
            self.matrix(f"{layer}.attn_q_a", QUERY_RANK, C)
            self.norm(f"{layer}.attn_q_a_norm", QUERY_RANK)
            self.matrix(f"{layer}.attn_q_b", H * (nope + rope), QUERY_RANK)
        self.matrix(f"{layer}.attn_kv_a_mqa", rank + rope, C)
        self.norm(f"{layer}.attn_kv_a_norm", rank)
        self.matrix(f"{layer}.attn_k_b", H, rank, nope)
        self.matrix(f"{layer}.attn_v_b", H, value, rank)
        return self.matrix(f"{layer}.attn_output", C, H * value)

    def block(self, name, width, *experts):
        C = self.config["hidden_size"]
        for part, shape in (("gate", (width, C)), ("up", (width, C)), ("down", (C, width))):
            self.matrix(name.format(part), *experts, *shape)

    def write(self):
        c, C = self.config, self.config["hidden_size"]
        self.keys()
        self.matrix("token_embd", c["vocab_size"], C)
        for i in range(self.layers):
            layer = f"blk.{i}"
            self.norm(f"{layer}.attn_norm", C)
            self.attention(layer)
            self.norm(f"{layer}.ffn_norm", C)
            if not self.experts or i < c.get("first_k_dense_replace", 0):
                self.block(f"{layer}.ffn_{{}}", c["intermediate_size"])
                continue
            self.router(f"{layer}.ffn_gate_inp", self.experts, C)
            self.block(f"{layer}.ffn_{{}}_exps", self.expert_width, self.experts)
            if shared := c.get("n_shared_experts"):
                self.block(f"{layer}.ffn_{{}}_shexp", shared * c["moe_intermediate_size"])
        self.norm("output_norm", C)
        self.matrix("output", c["vocab_size"], C)
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--type", choices=["q4_k", "q8_0", "f16", "bf16"], default="q4_k")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    config = json.loads(args.config.read_text())
    if config["architectures"][0] not in ARCHITECTURES:
        parser.error(f"{args.config}: allowed are {', '.join(ARCHITECTURES)}")
    File(args.output, config, args.type, args.layers, args.seed).write()


if __name__ == "__main__":
    main()
