"""Tensors of tiny pipelines: random numbers by name, in safetensors files. Needs Python alone."""

import json
import math
import random
import struct


def values(name, count, centre, spread):
    """A generator that the name seeds makes them."""
    draw = random.Random("braid tiny pipeline " + name).random
    return [centre + spread * (2 * draw() - 1) for _ in range(count)]


def encode(dtype, numbers):
    if dtype == "F32":
        return struct.pack(f"<{len(numbers)}f", *numbers)
    if dtype == "F16":
        return struct.pack(f"<{len(numbers)}e", *numbers)
    bits = struct.unpack(f"<{len(numbers)}I", struct.pack(f"<{len(numbers)}f", *numbers))
    rounded = [(b + 0x7fff + ((b >> 16) & 1)) >> 16 for b in bits]
    return struct.pack(f"<{len(rounded)}H", *rounded)


class Weights:
    """Tensors by name; written as one safetensors file or as shards."""

    def __init__(self, component, dtype="F32"):
        self.component = component
        self.dtype = dtype
        self.tensors = {}

    def add(self, name, shape, centre=0.0, spread=None):
        fan_in = math.prod(shape[1:]) if len(shape) > 1 else 1
        if spread is None:
            spread = math.sqrt(3 / fan_in) if len(shape) > 1 else 0.2
        numbers = values(f"{self.component}.{name}", math.prod(shape), centre, spread)
        self.tensors[name] = (shape, encode(self.dtype, numbers))

    def linear(self, name, rows, columns, bias=True, gain=1.0):
        self.add(name + ".weight", [rows, columns], spread=gain * math.sqrt(3 / columns))
        if bias:
            self.add(name + ".bias", [rows])

    def conv(self, name, out, channels, size, axes=2):
        self.add(name + ".weight", [out, channels] + axes * [size])
        self.add(name + ".bias", [out])

    def norm(self, name, width, bias=True):
        self.add(name + ".weight", [width], centre=1.0)
        if bias:
            self.add(name + ".bias", [width])

    def file(self, names):
        header, data = {"__metadata__": {"format": "pt"}}, b""
        for name in names:
            shape, raw = self.tensors[name]
            header[name] = {"dtype": self.dtype, "shape": shape,
                            "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text + data

    def write(self, folder, stem, shards=1, variant=""):
        names = sorted(self.tensors)
        dot = "." + variant if variant else ""
        if shards == 1:
            (folder / f"{stem}{dot}.safetensors").write_bytes(self.file(names))
            return
        index = {}
        for i in range(shards):
            part = names[i * len(names) // shards:(i + 1) * len(names) // shards]
            name = f"{stem}{dot}-{i + 1:05}-of-{shards:05}.safetensors"
            (folder / name).write_bytes(self.file(part))
            index.update((tensor, name) for tensor in part)
        total = sum(len(raw) for _, raw in self.tensors.values())
        write_json(folder / f"{stem}.safetensors.index{dot}.json",
                   {"metadata": {"total_size": total}, "weight_map": index})


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
