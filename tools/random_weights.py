#!/usr/bin/env python3
"""The weights of `braid image --random-weights`, so that others compute with equal numbers.

  tools/random_weights.py SEED NAME [COUNT]   the first numbers of a tensor, one a line

SEED is 1 for the transformer and 2 for the decoder. Matrices and kernels of convolutions are normal
numbers with deviation 0.02, norms are ones, biases zeros. `tensor` needs NumPy, the rest Python alone.
Numbers agree with Braid's to the last place or two of f32, so in bf16 they are equal but for a few
that lie between two.
"""

import math
import sys

MASK = (1 << 64) - 1
STDDEV = 0.02


def mixed(seed, index):
    """The finalizer of SplitMix64 over a counter."""
    z = (seed + index * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
    return z ^ z >> 31


def tensor_seed(seed, name):
    """SplitMix64's finalizer over `seed` + FNV-1a of the name."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return mixed((seed + h) & MASK, 0)


def number(seed, index):
    """Box-Muller: an even index and the odd one after it share the bits of a counter."""
    bits = mixed(seed, index // 2 + 1)
    radius = math.sqrt(-2 * math.log(((bits >> 40) + 1) / (1 << 24)))
    angle = math.pi * (bits & 0xFFFFFF) / (1 << 23)
    return STDDEV * radius * (math.sin(angle) if index % 2 else math.cos(angle))


def tensor(seed, name, shape):
    """A whole tensor in f32, as a NumPy array."""
    import numpy as np
    if len(shape) == 1:
        return np.full(shape, 0 if name.endswith(".bias") else 1, np.float32)
    n = math.prod(shape)
    with np.errstate(over="ignore"):
        z = np.uint64(tensor_seed(seed, name)) + (
            np.arange(1, (n + 1) // 2 + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    radius = STDDEV * np.sqrt(-2 * np.log(((z >> np.uint64(40)) + np.uint64(1)) / (1 << 24)))
    angle = np.pi * (z & np.uint64(0xFFFFFF)) / (1 << 23)
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return pairs.reshape(-1)[:n].reshape(shape).astype(np.float32)


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    seed = tensor_seed(int(sys.argv[1]), sys.argv[2])
    for i in range(int(sys.argv[3]) if len(sys.argv) == 4 else 8):
        print(f"{number(seed, i):.9g}")


if __name__ == "__main__":
    main()
