#!/usr/bin/env python3
"""Writes a Llama GGUF anew with its weights in another format, so that formats can be compared on
one model. Needs the packages gguf and numpy of tools/requirements.txt.

  tools/requantize.py MODEL.gguf --type q4_0 -o OUT.gguf

Types: q4_0, q4_1, q5_0, q8_0, q4_k, f16, bf16. Norms stay f32. The token embedding, which is the
head of a tied model, becomes q8_0 beside weights in blocks. That is llama-quantize's choice for
rows that are no multiple of 256. --type q4_k takes q5_0 for such rows, as llama-quantize does.
With --pad a model gets zeros until each row is a multiple of 256: more channels, more heads. Norms
are scaled for them, so the padded model computes the same function and q4_k fits all of it.

A block's scale is taken from its extremes, without a search, and the source may have been quantized
already: the files are for measuring speed and agreement, not for quality.
"""

import argparse
import pathlib
import sys

import numpy
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType, quants

TYPES = {"q4_0": Type.Q4_0, "q4_1": Type.Q4_1, "q5_0": Type.Q5_0, "q8_0": Type.Q8_0,
         "q4_k": Type.Q4_K, "f16": Type.F16, "bf16": Type.BF16}
FILE_TYPES = {"q4_0": LlamaFileType.MOSTLY_Q4_0, "q4_1": LlamaFileType.MOSTLY_Q4_1,
              "q5_0": LlamaFileType.MOSTLY_Q5_0, "q8_0": LlamaFileType.MOSTLY_Q8_0,
              "q4_k": LlamaFileType.MOSTLY_Q4_K_S, "f16": LlamaFileType.MOSTLY_F16,
              "bf16": LlamaFileType.MOSTLY_BF16}
SUPER = 256  # elements of a q4_k block


def quantize_q4_k(rows):
    """f32 [N, K] as q4_k bytes [N, K / 256 * 144]: x = d * scale * code - dmin * minimum."""
    groups = rows.reshape(-1, 8, 32)
    lowest = numpy.minimum(groups.min(axis=2), 0)
    steps = (groups.max(axis=2) - lowest) / 15
    d = (steps.max(axis=1) / 63).astype(numpy.float16)
    dmin = (-lowest.min(axis=1) / 63).astype(numpy.float16)

    def six_bits(values, unit):
        unit = unit.astype(numpy.float32)[:, None]
        ratio = numpy.divide(values, unit, out=numpy.zeros_like(values), where=unit > 0)
        return numpy.clip(numpy.rint(ratio), 0, 63).astype(numpy.uint8)

    scales, minima = six_bits(steps, d), six_bits(-lowest, dmin)
    step = (d.astype(numpy.float32)[:, None] * scales)[:, :, None]
    base = (dmin.astype(numpy.float32)[:, None] * minima)[:, :, None]
    ratio = numpy.divide(groups + base, step, out=numpy.zeros_like(groups), where=step > 0)
    codes = numpy.clip(numpy.rint(ratio), 0, 15).astype(numpy.uint8)

    packed = numpy.empty((len(groups), 144), numpy.uint8)
    packed[:, 0:2] = d[:, None].view(numpy.uint8)
    packed[:, 2:4] = dmin[:, None].view(numpy.uint8)
    packed[:, 4:8] = scales[:, :4] | (scales[:, 4:] >> 4) << 6
    packed[:, 8:12] = minima[:, :4] | (minima[:, 4:] >> 4) << 6
    packed[:, 12:16] = scales[:, 4:] & 15 | (minima[:, 4:] & 15) << 4
    packed[:, 16:] = (codes[:, 0::2] | codes[:, 1::2] << 4).reshape(-1, 128)
    return packed.reshape(len(rows), -1)


def target_type(name, columns, wanted):
    if not name.startswith("token_embd"):
        return Type.Q5_0 if wanted == Type.Q4_K and columns % SUPER else wanted
    return wanted if wanted in (Type.F16, Type.BF16) else Type.Q8_0


def round_up(value, unit):
    return -(-value // unit) * unit


class Padding:
    """What zeros a Llama needs for rows of whole multiples of 256, and what changes with them."""

    def __init__(self, fields):
        width, heads, kv_heads = (fields[f"llama.{key}"].contents() for key in
                                  ("embedding_length", "attention.head_count",
                                   "attention.head_count_kv"))
        size, group = width // heads, heads // kv_heads
        self.kv_heads = kv_heads
        while self.kv_heads * group * size % SUPER:
            self.kv_heads += 1
        self.width = round_up(width, SUPER)
        self.shapes = {"attn_q": self.kv_heads * group * size, "attn_k": self.kv_heads * size,
                       "attn_v": self.kv_heads * size}
        # A mean over more channels is smaller by this factor.
        self.share = width / self.width
        epsilon = "llama.attention.layer_norm_rms_epsilon"
        self.fields = {"llama.embedding_length": self.width,
                       "llama.attention.head_count": self.kv_heads * group,
                       "llama.attention.head_count_kv": self.kv_heads,
                       epsilon: fields[epsilon].contents() * self.share}
        for key in ("key_length", "value_length"):
            if f"llama.attention.{key}" not in fields:
                self.fields[f"llama.attention.{key}"] = size

    def of(self, name, x):
        """x, f32 [N, K] or [K], with its zeros."""
        if x.ndim == 1:
            return numpy.pad(x * numpy.sqrt(self.share), (0, self.width - len(x)))
        part = name.split(".")[-2]
        columns = self.shapes["attn_q"] if part == "attn_output" else round_up(x.shape[1], SUPER)
        rows = self.shapes.get(part, round_up(len(x), SUPER))
        return numpy.pad(x, ((0, rows - len(x)), (0, columns - x.shape[1])))


def copy_fields(reader, writer, changed):
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture" or name in changed:
            continue
        kinds = field.types
        writer.add_key_value(name, field.contents(), kinds[0], kinds[-1] if len(kinds) > 1 else None)
    for name, value in changed.items():
        kind = GGUFValueType.FLOAT32 if isinstance(value, float) else GGUFValueType.UINT32
        writer.add_key_value(name, value, kind)


def requantize(args):
    reader = GGUFReader(args.model)
    architecture = reader.fields["general.architecture"].contents()
    if architecture != "llama":
        sys.exit(f"requantize: {args.model} is a {architecture}; known here: llama")
    padding = Padding(reader.fields) if args.pad else None
    changed = {"general.file_type": int(FILE_TYPES[args.type])} | (padding.fields if padding else {})
    writer = GGUFWriter(args.output, architecture)
    copy_fields(reader, writer, changed)
    for tensor in reader.tensors:
        x = quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        if padding:
            x = padding.of(tensor.name, x)
        kind = Type.F32 if x.ndim == 1 else target_type(tensor.name, x.shape[1], TYPES[args.type])
        data = quantize_q4_k(x) if kind == Type.Q4_K else quants.quantize(x, kind)
        writer.add_tensor(tensor.name, numpy.ascontiguousarray(data), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    parser.add_argument("--type", choices=TYPES, required=True)
    parser.add_argument("--pad", action="store_true", help="zeros up to rows of multiples of 256")
    args = parser.parse_args()
    if not args.model.is_file():
        parser.error(f"{args.model}: no such file")
    requantize(args)


if __name__ == "__main__":
    main()
