#!/usr/bin/env python3
"""Makes a tiny Flux.1 or CogVideoX pipeline with random weights, as diffusers lays it out.

  tools/make_tiny_pipeline.py FOLDER              guidance, dynamic shift; transformer in bf16 shards
  tools/make_tiny_pipeline.py FOLDER --kind fast  no guidance, static shift; other sizes, f16 variant
  tools/make_tiny_pipeline.py FOLDER --kind video  CogVideoX as 2B; video_rotary as 5B, video_pairs as 1.5

`braid image -m FOLDER -p TEXT` (`braid video`) then draws coloured noise: the weights have learned nothing. The
folder is for tests, and for trying the program without a download. Needs Python alone. Weights come
from a hash of their names, so that every run writes the same bytes.
"""

import argparse
import pathlib
import sys

sys.dont_write_bytecode = True

import tiny_cogvideox
from tiny_weights import Weights, write_json

KINDS = {
    "guided": {
        "transformer": {"blocks": 2, "single": 2, "heads": 2, "head_dim": 16, "axes": [4, 6, 6],
                        "guidance": True, "dtype": "BF16", "shards": 2, "variant": ""},
        "scheduler": {"shift": 3.0, "use_dynamic_shifting": True, "base_shift": 0.5,
                      "max_shift": 1.15, "base_image_seq_len": 256, "max_image_seq_len": 4096},
        "t5": {"width": 32, "hidden": 40, "heads": 4, "head_dim": 8, "layers": 2},
        "clip": {"width": 32, "hidden": 48, "heads": 4, "layers": 2},
        "vae": {"latent": 4, "blocks": [8, 16, 16], "layers": 1, "groups": 4},
    },
    "fast": {
        "transformer": {"blocks": 1, "single": 3, "heads": 3, "head_dim": 24, "axes": [4, 8, 12],
                        "guidance": False, "dtype": "F16", "shards": 1, "variant": "fp16"},
        "scheduler": {"shift": 1.0, "use_dynamic_shifting": False},
        "t5": {"width": 24, "hidden": 32, "heads": 3, "head_dim": 10, "layers": 1},
        "clip": {"width": 24, "hidden": 40, "heads": 2, "layers": 1},
        "vae": {"latent": 4, "blocks": [8, 8], "layers": 2, "groups": 2},
    },
    # The shape of the demo model, which tools/train_demo_image.py trains.
    "demo": {
        "transformer": {"blocks": 2, "single": 4, "heads": 3, "head_dim": 32, "axes": [8, 12, 12],
                        "guidance": False, "dtype": "F16", "shards": 1, "variant": ""},
        "scheduler": {"shift": 1.0, "use_dynamic_shifting": False},
        "t5": {"width": 64, "hidden": 96, "heads": 4, "head_dim": 16, "layers": 2},
        "clip": {"width": 64, "hidden": 96, "heads": 4, "layers": 2},
        "vae": {"latent": 4, "blocks": [16, 32, 48], "layers": 1, "groups": 8},
        "words": """a big small red green blue yellow purple orange circle square triangle on the
left right in middle gray white black background""".split(),
    },
}

WORDS = """a the red green blue big small round square circle cat dog on in of and with light dark
sea sun hat box tree house""".split()
# U+2581, which stands for a space in T5's pieces.
SPACE = "\u2581"


# Components.

def transformer(folder, kind):
    t, width = kind["transformer"], kind["transformer"]["heads"] * kind["transformer"]["head_dim"]
    channels = 4 * kind["vae"]["latent"]
    text, pooled = kind["t5"]["width"], kind["clip"]["width"]
    write_json(folder / "config.json", {
        "_class_name": "FluxTransformer2DModel", "attention_head_dim": t["head_dim"],
        "axes_dims_rope": t["axes"], "guidance_embeds": t["guidance"], "in_channels": channels,
        "joint_attention_dim": text, "num_attention_heads": t["heads"], "num_layers": t["blocks"],
        "num_single_layers": t["single"], "out_channels": None, "patch_size": 1,
        "pooled_projection_dim": pooled})
    w = Weights("transformer", t["dtype"])
    w.linear("x_embedder", width, channels)
    w.linear("context_embedder", width, text)
    for name, size in [("timestep", 256)] + t["guidance"] * [("guidance", 256)] + [("text", pooled)]:
        w.linear(f"time_text_embed.{name}_embedder.linear_1", width, size)
        w.linear(f"time_text_embed.{name}_embedder.linear_2", width, width)
    for i in range(t["blocks"]):
        block = f"transformer_blocks.{i}"
        w.linear(block + ".norm1.linear", 6 * width, width)
        w.linear(block + ".norm1_context.linear", 6 * width, width)
        for name in ("to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj", "to_out.0",
                     "to_add_out"):
            w.linear(f"{block}.attn.{name}", width, width)
        for name in ("norm_q", "norm_k", "norm_added_q", "norm_added_k"):
            w.norm(f"{block}.attn.{name}", t["head_dim"], bias=False)
        for name in ("ff", "ff_context"):
            w.linear(f"{block}.{name}.net.0.proj", 4 * width, width)
            w.linear(f"{block}.{name}.net.2", width, 4 * width)
    for i in range(t["single"]):
        block = f"single_transformer_blocks.{i}"
        w.linear(block + ".norm.linear", 3 * width, width)
        for name in ("to_q", "to_k", "to_v"):
            w.linear(f"{block}.attn.{name}", width, width)
        for name in ("norm_q", "norm_k"):
            w.norm(f"{block}.attn.{name}", t["head_dim"], bias=False)
        w.linear(block + ".proj_mlp", 4 * width, width)
        w.linear(block + ".proj_out", width, 5 * width)
    w.linear("norm_out.linear", 2 * width, width)
    w.linear("proj_out", channels, width)
    w.write(folder, "diffusion_pytorch_model", t["shards"], t["variant"])


def t5(folder, kind, vocabulary, component="text_encoder_2"):
    t = kind["t5"]
    inner = t["heads"] * t["head_dim"]
    write_json(folder / "config.json", {
        "architectures": ["T5EncoderModel"], "model_type": "t5", "d_model": t["width"],
        "d_ff": t["hidden"], "d_kv": t["head_dim"], "num_heads": t["heads"],
        "num_layers": t["layers"], "feed_forward_proj": "gated-gelu", "layer_norm_epsilon": 1e-06,
        "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
        "vocab_size": vocabulary, "eos_token_id": 1, "pad_token_id": 0,
        "is_encoder_decoder": True, "tie_word_embeddings": False})
    w = Weights(component)
    w.add("shared.weight", [vocabulary, t["width"]], spread=1.0)
    for i in range(t["layers"]):
        block = f"encoder.block.{i}.layer"
        for name in "qkv":
            w.linear(f"{block}.0.SelfAttention.{name}", inner, t["width"], bias=False)
        w.linear(f"{block}.0.SelfAttention.o", t["width"], inner, bias=False)
        if i == 0:
            w.add(f"{block}.0.SelfAttention.relative_attention_bias.weight", [32, t["heads"]],
                  spread=1.0)
        w.norm(f"{block}.0.layer_norm", t["width"], bias=False)
        w.linear(f"{block}.1.DenseReluDense.wi_0", t["hidden"], t["width"], bias=False)
        w.linear(f"{block}.1.DenseReluDense.wi_1", t["hidden"], t["width"], bias=False)
        w.linear(f"{block}.1.DenseReluDense.wo", t["width"], t["hidden"], bias=False)
        w.norm(f"{block}.1.layer_norm", t["width"], bias=False)
    w.norm("encoder.final_layer_norm", t["width"], bias=False)
    w.write(folder, "model")


def clip(folder, kind, vocabulary):
    c = kind["clip"]
    write_json(folder / "config.json", {
        "architectures": ["CLIPTextModel"], "model_type": "clip_text_model",
        "hidden_size": c["width"], "intermediate_size": c["hidden"],
        "num_attention_heads": c["heads"], "num_hidden_layers": c["layers"],
        "hidden_act": "quick_gelu", "layer_norm_eps": 1e-05, "max_position_embeddings": 77,
        "vocab_size": vocabulary, "bos_token_id": vocabulary - 2, "eos_token_id": vocabulary - 1,
        "pad_token_id": vocabulary - 1, "projection_dim": c["width"]})
    w = Weights("text_encoder")
    w.add("text_model.embeddings.token_embedding.weight", [vocabulary, c["width"]], spread=1.0)
    w.add("text_model.embeddings.position_embedding.weight", [77, c["width"]], spread=0.5)
    for i in range(c["layers"]):
        layer = f"text_model.encoder.layers.{i}"
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            w.linear(f"{layer}.self_attn.{name}", c["width"], c["width"])
        w.norm(layer + ".layer_norm1", c["width"])
        w.norm(layer + ".layer_norm2", c["width"])
        w.linear(layer + ".mlp.fc1", c["hidden"], c["width"])
        w.linear(layer + ".mlp.fc2", c["width"], c["hidden"])
    w.norm("text_model.final_layer_norm", c["width"])
    w.write(folder, "model")


def resnet(w, name, channels, out):
    w.norm(name + ".norm1", channels)
    w.conv(name + ".conv1", out, channels, 3)
    w.norm(name + ".norm2", out)
    w.conv(name + ".conv2", out, out, 3)
    if channels != out:
        w.conv(name + ".conv_shortcut", out, channels, 1)


def middle(w, name, width):
    resnet(w, name + ".mid_block.resnets.0", width, width)
    w.norm(name + ".mid_block.attentions.0.group_norm", width)
    for part in ("to_q", "to_k", "to_v", "to_out.0"):
        w.linear(f"{name}.mid_block.attentions.0.{part}", width, width)
    resnet(w, name + ".mid_block.resnets.1", width, width)


def vae(folder, kind):
    v = kind["vae"]
    sizes, levels = v["blocks"], len(v["blocks"])
    write_json(folder / "config.json", {
        "_class_name": "AutoencoderKL", "act_fn": "silu", "block_out_channels": sizes,
        "down_block_types": levels * ["DownEncoderBlock2D"], "force_upcast": True,
        "in_channels": 3, "latent_channels": v["latent"], "layers_per_block": v["layers"],
        "latents_mean": None, "latents_std": None, "mid_block_add_attention": True,
        "norm_num_groups": v["groups"], "out_channels": 3, "sample_size": 32,
        "scaling_factor": 0.3611, "shift_factor": 0.1159,
        "up_block_types": levels * ["UpDecoderBlock2D"], "use_post_quant_conv": False,
        "use_quant_conv": False})
    w = Weights("vae")
    w.conv("encoder.conv_in", sizes[0], 3, 3)
    before = sizes[0]
    for i, size in enumerate(sizes):
        for j in range(v["layers"]):
            resnet(w, f"encoder.down_blocks.{i}.resnets.{j}", size if j else before, size)
        if i + 1 < levels:
            w.conv(f"encoder.down_blocks.{i}.downsamplers.0.conv", size, size, 3)
        before = size
    middle(w, "encoder", sizes[-1])
    w.norm("encoder.conv_norm_out", sizes[-1])
    w.conv("encoder.conv_out", 2 * v["latent"], sizes[-1], 3)
    before = sizes[-1]
    w.conv("decoder.conv_in", before, v["latent"], 3)
    middle(w, "decoder", before)
    for i, size in enumerate(reversed(sizes)):
        for j in range(v["layers"] + 1):
            resnet(w, f"decoder.up_blocks.{i}.resnets.{j}", size if j else before, size)
        if i + 1 < levels:
            w.conv(f"decoder.up_blocks.{i}.upsamplers.0.conv", size, size, 3)
        before = size
    w.norm("decoder.conv_norm_out", before)
    w.conv("decoder.conv_out", 3, before, 3)
    w.write(folder, "diffusion_pytorch_model")


# Tokenizers.

def byte_letters():
    """The letter for each byte, in the order of a byte-level vocabulary."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xa1, 0xad), *range(0xae, 0x100)]
    letters = {b: chr(b) for b in printable}
    for b in range(256):
        letters.setdefault(b, chr(256 + len(letters) - len(printable)))
    return [letters[b] for b in [*printable, *(b for b in range(256) if b not in printable)]]


def merges_of(words):
    """Merges that make each word from its begin, in the order of the words."""
    merges = []
    for word in words:
        parts = [*word[:-1], word[-1] + "</w>"]
        while len(parts) > 1:
            merge = (parts[0], parts[1])
            parts[:2] = ["".join(merge)]
            if merge not in merges:
                merges.append(merge)
    return merges


def clip_tokenizer(folder, words, whole=False):
    """`whole`: each word is one token, since long words' merges come before those of short words
    inside them."""
    letters = byte_letters()
    vocabulary = letters + [letter + "</w>" for letter in letters]
    vocabulary += ["".join(merge) for merge in merges_of(words)]
    vocabulary += ["<|startoftext|>", "<|endoftext|>"]
    merges = merges_of(sorted(words, key=len, reverse=True) if whole else words)
    write_json(folder / "vocab.json", {piece: i for i, piece in enumerate(vocabulary)})
    (folder / "merges.txt").write_text(
        "#version: 0.2\n" + "".join(" ".join(merge) + "\n" for merge in merges), encoding="utf-8")
    write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "CLIPTokenizer", "model_max_length": 77, "errors": "replace",
        "bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>", "unk_token": "<|endoftext|>"})
    return len(vocabulary)


def t5_tokenizer(folder, words):
    pieces = [["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], [SPACE, -2.0]]
    letters = [chr(c) for c in range(ord("!"), ord("~") + 1)]
    pieces += [[letter, -6.0 - i / 64] for i, letter in enumerate(letters)]
    pieces += [[SPACE + word, -4.0 - i / 16] for i, word in enumerate(words)]
    pieces += [[ending, -5.0 - i / 16] for i, ending in enumerate(["ed", "ing", "er", "es", "st"])]
    special = [{"id": i, "content": piece, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for i, (piece, _) in enumerate(pieces[:3])]
    write_json(folder / "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                     {"SpecialToken": {"id": "</s>", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 0}},
                     {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}},
        "decoder": {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always",
                    "split": True},
        "model": {"type": "Unigram", "unk_id": 2, "vocab": pieces, "byte_fallback": False}})
    write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "T5Tokenizer", "model_max_length": 512, "eos_token": "</s>",
        "pad_token": "<pad>", "unk_token": "<unk>", "extra_ids": 0})
    return len(pieces)


def subfolders(root, names):
    folders = {name: root / name for name in names}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    return folders


def make_video(root, kind):
    folders = subfolders(root, tiny_cogvideox.COMPONENTS)
    write_json(root / "model_index.json", tiny_cogvideox.index(kind))
    write_json(folders["scheduler"] / "scheduler_config.json", kind["scheduler"])
    t5(folders["text_encoder"], kind, t5_tokenizer(folders["tokenizer"], WORDS), "text_encoder")
    tiny_cogvideox.transformer(folders["transformer"], kind)
    tiny_cogvideox.vae(folders["vae"], kind)


def make(root, kind_name):
    if kind_name in tiny_cogvideox.KINDS:
        make_video(root, tiny_cogvideox.KINDS[kind_name])
        return
    kind = KINDS[kind_name]
    folders = subfolders(root, ("scheduler", "tokenizer", "tokenizer_2", "text_encoder",
                                "text_encoder_2", "transformer", "vae"))
    write_json(root / "model_index.json", {
        "_class_name": "FluxPipeline", "_diffusers_version": "0.42.1",
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "text_encoder_2": ["transformers", "T5EncoderModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "tokenizer_2": ["transformers", "T5TokenizerFast"],
        "transformer": ["diffusers", "FluxTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKL"]})
    write_json(folders["scheduler"] / "scheduler_config.json", {
        "_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000,
        **kind["scheduler"]})
    words = kind.get("words", WORDS)
    clip(folders["text_encoder"], kind, clip_tokenizer(folders["tokenizer"], words, whole="words" in kind))
    t5(folders["text_encoder_2"], kind, t5_tokenizer(folders["tokenizer_2"], words))
    transformer(folders["transformer"], kind)
    vae(folders["vae"], kind)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--kind", choices=[*KINDS, *tiny_cogvideox.KINDS], default="guided")
    options = parser.parse_args()
    try:
        make(options.folder, options.kind)
    except OSError as error:
        sys.exit(f"make_tiny_pipeline: {error}")


if __name__ == "__main__":
    main()
