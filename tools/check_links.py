#!/usr/bin/env python3
"""Checks that each link of a page to a file or a heading of this project leads somewhere; prints `page: link` for each that does not and exits with 1."""

import pathlib
import re
import subprocess
import sys

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def without_code(text):
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(path):
    names = (re.sub(r"[^\w\- ]", "", h.lower()).strip() for h in HEADING.findall(without_code(path.read_text())))
    return {name.replace(" ", "-") for name in names}


def broken_links(page):
    for link in LINK.findall(without_code(page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            yield link


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    pages = subprocess.run(["git", "ls-files", "*.md"], cwd=root, check=True, capture_output=True, text=True).stdout.split()
    broken = [f"{page}: {link}" for page in pages for link in broken_links(root / page)]
    print("\n".join(broken) or f"{len(pages)} pages")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
