#!/usr/bin/env python3
"""Prints the share of pointing words in comments and pages, folder by folder: prose.py [PATH ...]

A pointing word stands for a noun that stands elsewhere (that, it, which, one, ...). A sentence without them is understood alone. Well-read projects are at
1 to 5%; the aim here is 7% or less, and never a worse sentence for a better figure. Code, tables, links and commands do not count. --files lists the
files with the highest shares, --limit N ends with 1 where a folder is above N percent.
"""

import argparse
import collections
import pathlib
import re
import sys

POINTING = set("what that it its which those these whose where they them there one so of who".split())
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
CODE = {".h", ".cc", ".cu", ".cuh"}
LEAST_WORDS = 40  # a file with fewer says nothing by its share


def prose_of(path):
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix in CODE:
        return " ".join(m.group() for m in COMMENT.finditer(text) if m.group().startswith("/"))
    text = re.sub(r"```.*?```", " ", text, flags=re.DOTALL)
    lines = [line for line in text.splitlines() if not line.startswith(("|", "    ", "#"))]
    return re.sub(r"`[^`]*`|\]\([^)]*\)", " ", "\n".join(lines))


def count(path):
    words = [w.lower() for w in WORD.findall(prose_of(path))]
    return len(words), sum(w in POINTING for w in words)


def files_of(roots):
    for root in roots:
        paths = [root] if root.is_file() else sorted(root.rglob("*"))
        yield from (p for p in paths if p.suffix in CODE | {".md"})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=pathlib.Path, default=[pathlib.Path(p) for p in ("src", "apps", "docs", "README.md")])
    parser.add_argument("--files", type=int, default=0, metavar="N", help="list the N files with the highest shares")
    parser.add_argument("--limit", type=float, metavar="PERCENT")
    options = parser.parse_args()
    folders = collections.defaultdict(lambda: [0, 0])
    files = []
    for path in files_of(options.paths):
        words, pointing = count(path)
        if words >= LEAST_WORDS:
            files.append((pointing / words, words, path))
        for i, n in enumerate((words, pointing)):
            folders[path.parent][i] += n
    above = False
    for folder, (words, pointing) in sorted(folders.items()):
        if words == 0:
            continue
        share = 100 * pointing / words
        above |= options.limit is not None and share > options.limit
        print(f"{share:5.1f}%  {words:7}  {folder}")
    for share, words, path in sorted(files, reverse=True)[: options.files]:
        print(f"{100 * share:5.1f}%  {words:7}  {path}")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
