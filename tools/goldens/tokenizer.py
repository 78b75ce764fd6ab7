"""The one small tokenizer of all random models: 256 byte tokens, 3 special ones, 13 merges."""

import json

MERGES = [("Ġ", "t"), ("h", "e"), ("i", "n"), ("r", "e"), ("o", "n"), ("Ġt", "he"), ("e", "r"),
          ("a", "t"), ("Ġ", "a"), ("Ġ", "s"), ("n", "d"), ("Ġa", "nd"), ("in", "g")]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
                 "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
                 "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
NORMAL, CONTROL, UNUSED = 1, 3, 5  # GGUF token types


def byte_characters():
    """GPT-2's printable stand-in for each byte: itself where printable, else from U+0100 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def vocabulary():
    """All tokens by id: bytes, special ones, merged ones."""
    return byte_characters() + SPECIAL + ["".join(pair) for pair in MERGES]


def gguf_tokens(vocab_size):
    """(tokens, token types), padded to the model's vocabulary as llama.cpp's converter does."""
    known = vocabulary()
    pads = [f"[PAD{i}]" for i in range(len(known), vocab_size)]
    types = [CONTROL if t in SPECIAL else NORMAL for t in known] + [UNUSED] * len(pads)
    return known + pads, types


def write(folder):
    special = [{"id": 256 + i, "content": text, "single_word": False, "lstrip": False,
                "rstrip": False, "normalized": False, "special": True}
               for i, text in enumerate(SPECIAL)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {text: i for i, text in enumerate(vocabulary())},
                  "merges": [" ".join(pair) for pair in MERGES]},
    }
    config = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False, "bos_token": SPECIAL[0],
              "eos_token": SPECIAL[2], "unk_token": SPECIAL[0], "chat_template": CHAT_TEMPLATE,
              "model_max_length": 512, "clean_up_tokenization_spaces": False,
              "added_tokens_decoder": {str(t["id"]): {k: v for k, v in t.items() if k != "id"}
                                       for t in special}}
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        (folder / name).write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")
