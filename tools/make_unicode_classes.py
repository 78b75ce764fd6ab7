#!/usr/bin/env python3
"""Writes the tables of characters that tokenizers need, into src/braid/io.

tokenizer_classes.inc has the code points of \\p{L} and \\p{N}, tokenizer_lower.inc has the lower
case of each code point. Both are read out of Hugging Face's `tokenizers`, which Braid's tokenizers
must equal; the Unicode version is the one that it carries. Run from the repository root.
"""

import pathlib
import sys

try:
    import tokenizers
    from tokenizers import Regex, normalizers, pre_tokenizers
except ImportError as error:
    sys.exit(f"make_unicode_classes: needs the packages of tools/requirements.txt ({error})")

FOLDER = pathlib.Path("src/braid/io")
CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def members(pattern):
    """The code points that `pattern` matches: those that splitting by it removes."""
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    found = set()
    for i in range(0, len(CODES), 4096):
        block = CODES[i : i + 4096]
        pieces = split.pre_tokenize_str("".join(map(chr, block)))
        kept = {ord(ch) for piece, _ in pieces for ch in piece}
        found.update(c for c in block if c not in kept)
    return found


def ranges(codes):
    out = []
    for c in sorted(codes):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def lower_ranges():
    """[begin, end, step, delta]: begin, begin + step, ... end become lower by adding delta."""
    lower = normalizers.Lowercase()
    out = []
    for code in CODES:
        text = lower.normalize_str(chr(code))
        if len(text) != 1:
            assert code == 0x130  # the one character that becomes two: written out in C++
            continue
        delta = ord(text) - code
        if delta == 0:
            continue
        last = out[-1] if out else [0, 0, 1, 0]
        step = code - last[1]
        if last[3] == delta and step <= 2 and (last[0] == last[1] or last[2] == step):
            last[1:3] = [code, step]
        else:
            out.append([code, code, 1, delta])
    return out


def write(name, items):
    text = [f"// Made by tools/make_unicode_classes.py from tokenizers {tokenizers.__version__}.\n"]
    line = ""
    for item in items:
        if len(line) + len(item) + 1 > 100:
            text.append(line + "\n")
            line = ""
        line += (" " if line else "") + item
    text.append(line + "\n")
    (FOLDER / name).write_text("".join(text))


def main():
    rows = [(b, e, "kLetter") for b, e in ranges(members(r"\p{L}"))]
    rows += [(b, e, "kNumber") for b, e in ranges(members(r"\p{N}"))]
    write("tokenizer_classes.inc", [f"{{0x{b:x}, 0x{e:x}, {kind}}}," for b, e, kind in sorted(rows)])
    write("tokenizer_lower.inc", [f"{{0x{b:x}, 0x{e:x}, {s}, {d}}}," for b, e, s, d in lower_ranges()])


if __name__ == "__main__":
    main()
