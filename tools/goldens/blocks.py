"""GGUF block formats. The 32-element ones are PyPI gguf's; gguf has no quantizer for the K-formats,
so a plain one is here: best-range scales, nearest codes. tests/golden/support/block_quantizer.cc
does the same to the bit.
"""

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants

TYPES = {name: Type[name.upper()] for name in
         ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k")}


def nearest(x):
    return np.floor(x + np.float32(0.5))


def divide(x, y):
    """x / y, 0 where y is 0; f32."""
    return np.divide(x, y, out=np.zeros(np.broadcast(x, y).shape, np.float32), where=y != 0)


def as_f16(x):
    return x.astype(np.float16)


def pack_scales(scales, mins):
    """uint8 [n, 8] each, 6 bits used: 12 bytes per block."""
    low = np.concatenate([scales[:, :4] | (scales[:, 4:] >> 4) << 6,
                          mins[:, :4] | (mins[:, 4:] >> 4) << 6], axis=1)
    return np.concatenate([low, (scales[:, 4:] & 15) | (mins[:, 4:] & 15) << 4], axis=1)


def quantize_q45_k(x, levels):
    """x f32 [n, 256]; levels 15 or 31. x = d * scale * q - dmin * min in groups of 32."""
    groups = x.reshape(-1, 8, 32)
    low = np.minimum(groups.min(axis=2), np.float32(0))
    step = (groups.max(axis=2) - low) / np.float32(levels)
    d16 = as_f16(step.max(axis=1, keepdims=True) / np.float32(63))
    dmin16 = as_f16((-low).max(axis=1, keepdims=True) / np.float32(63))
    d, dmin = d16.astype(np.float32), dmin16.astype(np.float32)
    scales = np.clip(nearest(divide(step, d)), 0, 63).astype(np.float32)
    mins = np.clip(nearest(divide(-low, dmin)), 0, 63).astype(np.float32)
    codes = divide(groups + (dmin * mins)[..., None], (d * scales)[..., None])
    codes = np.clip(nearest(codes), 0, levels).astype(np.uint8)
    pairs = codes.reshape(-1, 4, 2, 32)
    nibbles = (pairs[:, :, 0] & 15) | (pairs[:, :, 1] & 15) << 4
    parts = [d16.view(np.uint8), dmin16.view(np.uint8),
             pack_scales(scales.astype(np.uint8), mins.astype(np.uint8))]
    if levels == 31:
        bits = codes >> 4 << np.arange(8, dtype=np.uint8)[None, :, None]
        parts.append(np.bitwise_or.reduce(bits, axis=1))
    return np.concatenate([*parts, nibbles.reshape(-1, 128)], axis=1)


def quantize_q6_k(x):
    """x f32 [n, 256]: x = d * scale * (q - 32) in groups of 16."""
    groups = x.reshape(-1, 16, 16)
    first = np.abs(groups).argmax(axis=2)
    step = np.take_along_axis(groups, first[..., None], axis=2)[..., 0] / np.float32(-32)
    d16 = as_f16(np.abs(step).max(axis=1, keepdims=True) / np.float32(127))
    d = d16.astype(np.float32)
    scales = np.clip(nearest(divide(step, d)), -127, 127).astype(np.float32)
    codes = np.clip(nearest(divide(groups, (d * scales)[..., None])), -32, 31) + 32
    codes = codes.astype(np.uint8).reshape(-1, 2, 4, 32)  # block, half, quarter, lane
    low = np.concatenate([(codes[:, :, 0] & 15) | (codes[:, :, 2] & 15) << 4,
                          (codes[:, :, 1] & 15) | (codes[:, :, 3] & 15) << 4], axis=2)
    high = np.bitwise_or.reduce(codes >> 4 << np.arange(0, 8, 2, dtype=np.uint8)[:, None], axis=2)
    return np.concatenate([low.reshape(-1, 128), high.reshape(-1, 64),
                           scales.astype(np.int8).view(np.uint8), d16.view(np.uint8)], axis=1)


def quantize(x, name):
    """x f32 [rows, cols]: the bytes of its rows, as gguf's writer takes them."""
    if name in ("q4_k", "q5_k", "q6_k"):
        blocks = x.reshape(-1, 256)
        packed = (quantize_q6_k(blocks) if name == "q6_k"
                  else quantize_q45_k(blocks, 15 if name == "q4_k" else 31))
        return np.ascontiguousarray(packed).reshape(x.shape[0], -1)
    return quants.quantize(x, TYPES[name])


def dequantize(packed, name):
    return quants.dequantize(packed, TYPES[name])
