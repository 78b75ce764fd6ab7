#!/usr/bin/env python3
"""Writes a model that answers with what stood behind an earlier letter, at any distance: built, not
trained, so that a needle that attention reads is found, and a needle left out is not. Needs the
package numpy of tools/requirements.txt.

  tools/make_recall_model.py FOLDER
  tools/make_recall_model.py FOLDER --tokens 4096 [--needles 16] [--together 1]
      --run 'braid run --sp ring ...'

A token is a byte. The model is a GLM of three layers over codes of C / 3 signs each: the token, the
token before, the answer. The first layer's head turns by all of RoPE's frequencies and reads the
token before, at any position. The second layer's head is in the half of GLM's heads that does not
turn: its query is the token, its key the token before, its value the token. The third layer adds
nothing. So layers 1 and 3, which level attention leaves dense, find no needle.

With --run needles (a capital, then a sign) stand at even depths of a text of small letters, and the
command is asked for each, some of them at a time: `-m FOLDER -f TEXT -n 1` follow it.
"""

import argparse
import concurrent.futures
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from goldens import tokenizer

CODE, D, VOCABULARY, FFN, POSITIONS = 128, 256, 272, 32, 1 << 20
C = 3 * CODE
BASE = 10000.0
MARGIN = 24.0  # of scores, over 2^20 other keys
HAYSTACK = "bcfjklmpquvwxyz"  # in no merge of the tokenizer
KEYS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
VALUES = "!#$%&()*+,-./:;<=>?@[]^_{|}~"


def tensors():
    codes = numpy.random.default_rng(7).choice([-1.0, 1.0], (VOCABULARY, CODE)) / CODE**0.5
    embedding = numpy.zeros((VOCABULARY, C))
    embedding[:, :CODE] = codes
    head = numpy.zeros((VOCABULARY, C))
    head[:, 2 * CODE:] = codes
    out = {"model.embed_tokens.weight": embedding, "lm_head.weight": head,
           "model.norm.weight": numpy.ones(C)}
    for i in range(3):
        layer = {"input_layernorm.weight": numpy.ones(C),
                 "post_attention_layernorm.weight": numpy.ones(C),
                 "mlp.gate_up_proj.weight": numpy.zeros((2 * FFN, C)),
                 "mlp.down_proj.weight": numpy.zeros((C, FFN)),
                 "self_attn.o_proj.weight": numpy.zeros((C, D))}
        for name in "qkv":
            layer[f"self_attn.{name}_proj.weight"] = numpy.zeros((D, C))
            layer[f"self_attn.{name}_proj.bias"] = numpy.zeros(D)
        rows = numpy.arange(CODE)
        length = (C / (i + 1)) ** 0.5  # of a code behind the norm
        if i == 0:
            # Scores are MARGIN / gap * sum of cos(theta (distance - 1)) / pairs.
            theta = BASE ** (-numpy.arange(CODE // 2) / (CODE // 2))
            distance = numpy.arange(POSITIONS)[:, None]
            score = numpy.zeros(POSITIONS)
            for t in theta:
                score += numpy.cos(t * (distance[:, 0] - 1))
            gap = score[1] - numpy.delete(score, 1).max()
            gain = (MARGIN / gap * D**0.5) ** 0.5
            layer["self_attn.q_proj.bias"][0:CODE:2] = gain * numpy.cos(theta)
            layer["self_attn.q_proj.bias"][1:CODE:2] = -gain * numpy.sin(theta)
            layer["self_attn.k_proj.bias"][0:CODE:2] = gain
            layer["self_attn.v_proj.weight"][rows, rows] = 1
            layer["self_attn.o_proj.weight"][CODE + rows, rows] = 1 / length
        if i == 1:
            different = (codes @ codes.T - 2 * numpy.eye(VOCABULARY)).max()
            gain = (MARGIN / (1 - different) * D**0.5) ** 0.5 / length
            layer["self_attn.q_proj.weight"][CODE + rows, rows] = gain
            layer["self_attn.k_proj.weight"][CODE + rows, CODE + rows] = gain
            layer["self_attn.v_proj.weight"][rows, rows] = 1
            layer["self_attn.o_proj.weight"][2 * CODE + rows, rows] = 1 / length
        out |= {f"model.layers.{i}.{name}": value for name, value in layer.items()}
    return out


def write(folder):
    tokenizer.write(folder)
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, value in tensors().items():
        raw = value.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["GlmForCausalLM"], "model_type": "glm", "hidden_act": "silu",
        "hidden_size": C, "intermediate_size": FFN, "num_hidden_layers": 3,
        "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": D,
        "vocab_size": VOCABULARY, "max_position_embeddings": POSITIONS, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False, "attention_bias": True, "partial_rotary_factor": 0.5,
        "rope_theta": BASE, "bos_token_id": 256, "eos_token_id": 258, "pad_token_id": 258,
        "torch_dtype": "float32"}, indent=1) + "\n")


def ask(folder, tokens, needles, run, seed, together):
    draw = numpy.random.default_rng(seed)
    text = list(draw.choice(list(HAYSTACK), tokens - 1))
    keys = draw.permutation(list(KEYS))[:needles]
    values = draw.choice(list(VALUES), needles)
    depths = [int((i + 0.5) * tokens / needles) for i in range(needles)]
    for at, key, value in zip(depths, keys, values):
        text[at:at + 2] = key, value
    with tempfile.TemporaryDirectory() as work:
        def finds(key, value):
            path = pathlib.Path(work) / key
            path.write_text("".join(text) + key)
            answer = subprocess.run([*shlex.split(run), "-m", folder, "-f", path, "-n", "1"],
                                    check=True, text=True, stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL).stdout
            return answer.startswith(value)

        with concurrent.futures.ThreadPoolExecutor(together) as pool:
            found = list(pool.map(finds, keys, values))
    print(f"{sum(found)} of {needles} needles in {tokens} tokens: "
          + "".join("x" if hit else "." for hit in found))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--needles", type=int, default=16, choices=range(1, len(KEYS) + 1))
    parser.add_argument("--together", type=int, default=1, help="commands at a time")
    parser.add_argument("--run")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    write(pathlib.Path(args.folder))
    if args.run:
        ask(args.folder, args.tokens, args.needles, args.run, args.seed, args.together)


if __name__ == "__main__":
    main()
