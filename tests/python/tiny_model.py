"""A small random Llama as a Hugging Face folder."""

import json
import pathlib
import struct

import numpy

LAYERS, C, F, HEADS, KV_HEADS = 4, 256, 512, 4, 2
TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")


def byte_pieces():
    """How byte-level BPE spells each byte: the printable ones as they are, others from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b if b in printable else next(others)) for b in range(256)]


def write(folder, seed=7):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rand = numpy.random.default_rng(seed)
    pieces = [*byte_pieces(), "<s>", "</s>"]
    vocabulary = len(pieces)
    added = [{"id": 256 + i, "content": t, "special": True, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False} for i, t in enumerate(pieces[256:])]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {piece: i for i, piece in enumerate(pieces[:256])}, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": C,
        "intermediate_size": F, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "vocab_size": vocabulary, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "max_position_embeddings": 512, "hidden_act": "silu",
        "tie_word_embeddings": False, "bos_token_id": 256, "eos_token_id": 257,
        "torch_dtype": "float32"}))
    D = C // HEADS
    shapes = {"model.embed_tokens.weight": (vocabulary, C), "model.norm.weight": (C,),
              "lm_head.weight": (vocabulary, C)}
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        shapes |= {layer + "input_layernorm.weight": (C,),
                   layer + "post_attention_layernorm.weight": (C,),
                   layer + "self_attn.q_proj.weight": (C, C),
                   layer + "self_attn.k_proj.weight": (KV_HEADS * D, C),
                   layer + "self_attn.v_proj.weight": (KV_HEADS * D, C),
                   layer + "self_attn.o_proj.weight": (C, C),
                   layer + "mlp.gate_proj.weight": (F, C), layer + "mlp.up_proj.weight": (F, C),
                   layer + "mlp.down_proj.weight": (C, F)}
    header, data = {}, bytearray()
    for name, shape in shapes.items():
        values = rand.normal(0, 0.15, shape) if len(shape) > 1 else numpy.ones(shape)
        begin = len(data)
        data += values.astype(numpy.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return str(folder)
