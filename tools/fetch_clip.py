#!/usr/bin/env python3
"""Fetches the tokenizer of CLIP and prints its folder, for the tests.

CLIP's merges come inside the PyPI package open_clip_torch 3.3.0 (MIT, 1.5 MB). pip downloads the
package, it is checked by hash, and vocab.json and merges.txt, as folders of models have them, are
written to ${XDG_CACHE_HOME:-~/.cache}/braid/tokenizers/clip, whole or not at all. A second run only
looks whether the folder is there. Needs python3 as tools/fetch_model.py does.
"""

import argparse
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

from fetch_model import FetchError, download_package, sha256_of

PACKAGE = "open_clip_torch==3.3.0"
SHA256 = "c549ad5ed6bfc119cc11105033c0a2b9d7a2a4afeb40a58a09aab3da1a0043ce"
MEMBER = "open_clip/bpe_simple_vocab_16e6.txt.gz"
SPECIALS = ["<|startoftext|>", "<|endoftext|>"]
MERGES = 49152 - 256 - 2


def default_target():
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "braid" / "tokenizers" / "clip"


def write_files(folder, vocab, merges):
    unique = list(dict.fromkeys(vocab))
    (folder / "vocab.json").write_text(
        json.dumps({v: i for i, v in enumerate(unique)}, separators=(",", ":")) + "\n")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")


def write_real(packed, folder):
    """CLIP's own files out of open_clip's bpe_simple_vocab_16e6.txt.gz."""
    merges = gzip.decompress(packed).decode().split("\n")[1 : MERGES + 1]
    # The order of bytes in OpenAI's table: printable Latin-1 first.
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = [chr(b) for b in printable] + [chr(256 + n) for n in range(256 - len(printable))]
    vocab = alphabet + [c + "</w>" for c in alphabet]
    write_files(folder, vocab + [m.replace(" ", "") for m in merges] + SPECIALS, merges)


def unpack(wheel, target):
    """Checks the wheel, writes the files beside the target, and renames the folder into place."""
    if sha256_of(wheel) != SHA256:
        raise FetchError(f"{wheel}: its sha256 is not {SHA256}")
    with tempfile.TemporaryDirectory(prefix=".clip-", dir=target.parent) as folder:
        root = pathlib.Path(folder) / "clip"
        root.mkdir()
        with zipfile.ZipFile(wheel) as archive:
            write_real(archive.read(MEMBER), root)
        os.rename(root, target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=pathlib.Path, default=default_target(),
                        help="where the files go (default: %(default)s)")
    parser.add_argument("--wheel", type=pathlib.Path, help="the package, for machines off the net")
    args = parser.parse_args()
    try:
        if not args.target.is_dir():
            args.target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".fetch-", dir=args.target.parent) as folder:
                unpack(args.wheel or download_package(pathlib.Path(folder), PACKAGE, SHA256, "--only-binary",
                                                      "tools/fetch_clip.py --wheel FILE"), args.target)
        print(args.target)
    except (FetchError, OSError, subprocess.TimeoutExpired, zipfile.BadZipFile, KeyError) as error:
        sys.exit(f"fetch_clip: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
