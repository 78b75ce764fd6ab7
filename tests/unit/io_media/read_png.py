"""Reads a PNG file with Python's own zlib: prints its size, a checksum of its pixels, its texts.

    python3 read_png.py FILE     "WIDTH HEIGHT CRC32\\n", then "KEYWORD TEXT in JSON\\n" for each text
"""

import json
import struct
import sys
import zlib


def chunks(data):
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at = 8
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + size]
        (crc,) = struct.unpack_from(">I", data, at + 8 + size)
        assert crc == zlib.crc32(kind + body), kind
        yield kind, body
        at += 12 + size


def paeth(a, b, c):
    p = a + b - c
    return min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]


def unfilter(raw, width, height):
    stride = width * 3
    above = bytearray(stride)
    out = bytearray()
    for y in range(height):
        kind, *row = raw[y * (stride + 1) : (y + 1) * (stride + 1)]
        for i in range(stride):
            a = row[i - 3] if i >= 3 else 0
            b, c = above[i], above[i - 3] if i >= 3 else 0
            row[i] = (row[i] + (0, a, b, (a + b) // 2, paeth(a, b, c))[kind]) & 255
        above = row
        out += bytes(row)
    return out


def main():
    packed, texts, size = b"", [], None
    kinds = []
    for kind, body in chunks(open(sys.argv[1], "rb").read()):
        kinds.append(kind)
        if kind == b"IHDR":
            width, height, *form = struct.unpack(">IIBBBBB", body)
            assert form == [8, 2, 0, 0, 0], form
            size = width, height
        elif kind == b"tEXt":
            key, text = body.split(b"\0")
            texts.append((key.decode("ascii"), text.decode("latin-1")))
        elif kind == b"iTXt":
            key, rest = body.split(b"\0", 1)
            assert rest[:4] == b"\0\0\0\0", rest[:4]
            texts.append((key.decode("ascii"), rest[4:].decode()))
        elif kind == b"IDAT":
            packed += body
    assert kinds[0] == b"IHDR" and kinds[-1] == b"IEND" and b"sRGB" in kinds, kinds
    raw = zlib.decompress(packed)
    assert len(raw) == size[1] * (size[0] * 3 + 1)
    print(*size, zlib.crc32(unfilter(raw, *size)))
    for key, text in texts:
        print(key, json.dumps(text))


main()
