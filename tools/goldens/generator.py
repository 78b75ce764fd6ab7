"""Weights and prompts from a hash of (seed, name, index), the same as tests/golden/support/random_weights.cc.

The hash is splitmix64 (Steele, Lea, Flood 2014) on a key of FNV-1a; the 24 high bits make a number
of [-1, 1), and every step after it is exact in double but the last, the rounding to f32.
"""

import dataclasses

import numpy as np

MASK = (1 << 64) - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15


def fnv1a64(data):
    state = 0xCBF29CE484222325
    for byte in data:
        state = (state ^ byte) * 0x100000001B3 & MASK
    return state


def mix(x):
    """The output function of splitmix64 on an array of uint64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hashes(seed, name, count):
    """Hash of index 0 .. count - 1: uint64 [count]."""
    key = mix(np.array([fnv1a64(name.encode()) ^ seed], dtype=np.uint64))
    steps = np.arange(1, count + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        return mix(key + steps * np.uint64(GOLDEN_GAMMA))


@dataclasses.dataclass
class TensorSpec:
    """base + scale * u for each element, u uniform on [-1, 1). scale is a multiple of 2^-12."""
    name: str
    shape: list[int]
    base: float
    scale: float


def random_tensor(seed, spec):
    """f32 [shape]."""
    high = (hashes(seed, spec.name, int(np.prod(spec.shape))) >> np.uint64(40)).astype(np.int64)
    u = (high - (1 << 23)).astype(np.float64) / (1 << 23)
    return (spec.base + spec.scale * u).astype(np.float32).reshape(spec.shape)


def random_ids(seed, name, count, vocab):
    return [int(h) for h in hashes(seed, name, count) % np.uint64(vocab)]
