#!/usr/bin/env python3
"""Writes src/braid/io/tokenizer_classes.inc: the code points of \\p{L} and \\p{N}.

They are read out of the regular expressions of Hugging Face's `tokenizers`, which our
pre-tokenizers must equal; the Unicode version is the one it carries. Run from the repository root.
"""

import pathlib
import sys

try:
    import tokenizers
    from tokenizers import Regex, pre_tokenizers
except ImportError as error:
    sys.exit(f"make_unicode_classes: needs the packages of tools/requirements.txt ({error})")

TARGET = pathlib.Path("src/braid/io/tokenizer_classes.inc")
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


def main():
    rows = [(b, e, "kLetter") for b, e in ranges(members(r"\p{L}"))]
    rows += [(b, e, "kNumber") for b, e in ranges(members(r"\p{N}"))]
    rows.sort()
    text = [f"// Made by tools/make_unicode_classes.py from tokenizers {tokenizers.__version__}.\n"]
    line = ""
    for begin, end, kind in rows:
        item = f"{{0x{begin:x}, 0x{end:x}, {kind}}},"
        if len(line) + len(item) + 1 > 100:
            text.append(line + "\n")
            line = ""
        line += (" " if line else "") + item
    text.append(line + "\n")
    TARGET.write_text("".join(text))


if __name__ == "__main__":
    main()
