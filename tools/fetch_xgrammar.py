#!/usr/bin/env python3
"""Fetches the source of xgrammar 0.2.8 and prints its folder.

Structured output is built from it. pip downloads the source package of PyPI, it is checked by hash,
and what a build needs is unpacked at ${XDG_CACHE_HOME:-~/.cache}/braid/sources/xgrammar-0.2.8, whole
or not at all. A second run only looks whether the folder is there. Needs python3 as
tools/fetch_model.py does.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

from fetch_model import FetchError, download_package, sha256_of

VERSION = "0.2.8"
SHA256 = "8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80"
WANTED = ("cpp/", "include/", "3rdparty/picojson/", "3rdparty/dlpack/include/", "LICENSE", "NOTICE")


def default_target():
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "braid" / "sources" / f"xgrammar-{VERSION}"


def unpack(package, target):
    """Checks the package, unpacks the wanted files beside the target, and renames the folder into place."""
    if sha256_of(package) != SHA256:
        raise FetchError(f"{package}: its sha256 is not {SHA256}")
    with tempfile.TemporaryDirectory(prefix=".xgrammar-", dir=target.parent) as folder:
        root = pathlib.Path(folder) / "source"
        with tarfile.open(package) as archive:
            for member in archive.getmembers():
                name = member.name.partition("/")[2]
                if not member.isfile() or not name.startswith(WANTED) or ".." in name.split("/"):
                    continue
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.extractfile(member).read())
        os.rename(root, target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=pathlib.Path, default=default_target(),
                        help="where the source goes (default: %(default)s)")
    parser.add_argument("--package", type=pathlib.Path, help="the source package, for machines off the net")
    args = parser.parse_args()
    try:
        if not args.target.is_dir():
            args.target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".fetch-", dir=args.target.parent) as folder:
                unpack(args.package or download_package(pathlib.Path(folder), f"xgrammar=={VERSION}", SHA256, "--no-binary",
                                                        "tools/fetch_xgrammar.py --package FILE"), args.target)
        print(args.target)
    except (FetchError, OSError, subprocess.TimeoutExpired, tarfile.TarError) as error:
        sys.exit(f"fetch_xgrammar: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
