#!/usr/bin/env python3
"""Writes a dense Llama GGUF anew as a Mixtral that computes the same function: a real mixture of
experts for tests and timings. Needs the packages gguf and numpy of tools/requirements.txt.

  tools/make_moe.py MODEL.gguf -o OUT.gguf [--experts 8] [--used 2] [--break]

Each expert of a layer is the dense feed-forward block with its hidden units permuted by whole
quantization blocks: rows of gate and up, blocks of down's columns. The bytes of experts differ, the
function does not, and weights of the chosen experts sum to 1: whatever a random router chooses, the
result is the dense block's but for the order of sums. Text and perplexity of a right engine equal
those of MODEL.gguf. --break gives each expert the down of its neighbour: the text becomes garbage.
"""

import argparse
import pathlib
import sys

import numpy
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from requantize import copy_fields

PARTS = ("ffn_gate", "ffn_up", "ffn_down")
ROUTER_GAIN = 4.0  # of logits, over a normed input: choices are far from even


def permuted(tensor, order):
    """The bytes of one expert: units of whole blocks of down's columns, in `order`."""
    data, name = tensor.data, tensor.name.split(".")[-2]
    units = len(order)
    if name == "ffn_down":
        blocks = data.reshape(data.shape[0], units, -1)
        return numpy.ascontiguousarray(blocks[:, order]).reshape(data.shape)
    rows = data.reshape(units, -1, data.shape[1])
    return numpy.ascontiguousarray(rows[order]).reshape(data.shape)


def make(args):
    reader = GGUFReader(args.model)
    architecture = reader.fields["general.architecture"].contents()
    if architecture != "llama" or "llama.expert_count" in reader.fields:
        sys.exit(f"make_moe: {args.model} is no dense llama")
    writer = GGUFWriter(args.output, architecture)
    copy_fields(reader, writer, {})
    writer.add_key_value("llama.expert_count", args.experts, GGUFValueType.UINT32)
    writer.add_key_value("llama.expert_used_count", args.used, GGUFValueType.UINT32)
    width = reader.fields["llama.embedding_length"].contents()
    down = {tensor.name: tensor for tensor in reader.tensors if ".ffn_down." in tensor.name}
    random = numpy.random.default_rng(args.seed)
    orders = {}
    for tensor in reader.tensors:
        part = tensor.name.split(".")[-2]
        if part not in PARTS:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
            continue
        layer = tensor.name.split(".")[1]
        if layer not in orders:
            block = GGML_QUANT_SIZES[down[f"blk.{layer}.ffn_down.weight"].tensor_type][0]
            units = int(down[f"blk.{layer}.ffn_down.weight"].shape[0]) // max(block, 32)
            orders[layer] = [random.permutation(units) for _ in range(args.experts)]
            router = random.normal(0, ROUTER_GAIN / width ** 0.5, (args.experts, width))
            writer.add_tensor(f"blk.{layer}.ffn_gate_inp.weight", router.astype(numpy.float32))
        shift = 1 if args.break_ and part == "ffn_down" else 0
        experts = [permuted(tensor, orders[layer][(e + shift) % args.experts])
                   for e in range(args.experts)]
        writer.add_tensor(f"blk.{layer}.{part}_exps.weight", numpy.stack(experts),
                          raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--used", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--break", dest="break_", action="store_true",
                        help="give each expert the down of its neighbour")
    args = parser.parse_args()
    if not 1 <= args.used <= args.experts:
        parser.error(f"--used {args.used}: allowed are 1 to the {args.experts} experts")
    make(args)


if __name__ == "__main__":
    main()
