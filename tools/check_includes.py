#!/usr/bin/env python3
"""Holds the sources to the rules of docs/architecture.md that a compiler does not know.

  order      a folder of src/braid includes only the folders that ALLOWED gives it
  backend    the folders of one backend (cpu, cuda, null) do not include those of another
  quoted     a quoted include in src/braid is written from the root: "braid/tensor/view.h"
  asm        `asm` stands only in src/braid/kernels/cuda/ptx
  ops        schedule/ and backend/ know no op by name (&ops::kX): they ask its OpDef
  ifdef      no #if on a backend or an instruction set outside backend/, fabric/ and kernels/
  pragma     each header starts its code with #pragma once
  length     a file over 400 lines has a reason in LONG_FILES
  cmake      the DEPENDS of src/braid/*/CMakeLists.txt keep the same order

Prints `file:line: rule: message` for each breach and exits 1 if there is one.
"""

import argparse
import pathlib
import re
import sys

ORDER = ["base", "tensor", "program", "ops", "parallel", "schedule", "backend", "fabric", "job",
         "kernels", "runtime", "io", "text", "grammar", "model", "engine", "server"]
# A folder may include every folder before it, except where something narrower stands here.
NARROWER = {
    "io": ["base", "tensor"],
    "text": ["base", "io"],
    "grammar": ["base", "io", "text"],
    "model": ["base", "tensor", "program", "ops", "io"],
}
# What reads and writes files has no place below the model: only these may include io.
MAY_INCLUDE_IO = {"io", "text", "grammar", "model", "engine", "server"}
ALLOWED = {
    folder: {folder} | {other for other in NARROWER.get(folder, ORDER[:index])
                        if other != "io" or folder in MAY_INCLUDE_IO}
    for index, folder in enumerate(ORDER)
}
BACKENDS = {"cpu", "cuda", "null"}
MAY_ASK_BACKEND = {"backend", "fabric", "kernels"}
BACKEND_MACRO = re.compile(
    r"\b(BRAID_(?:CUDA|CPU|NULL|NVSHMEM|NCCL|MPI|BACKEND)\w*|__CUDA\w*__|__CUDA_ARCH\w*|__NVCC__"
    r"|__(?:AVX|SSE|AMX|FMA|F16C|BMI|ARM_)\w*|__x86_64__|__aarch64__)\b")

SOURCES = {".h", ".cc", ".c", ".cu", ".cuh", ".inc", ".py"}
ROOTS = ["src", "apps", "bench", "tests", "tools", "examples", "python"]
MAX_LINES = 400
# Path from the root of the tree: why the file is better whole.
LONG_FILES: dict[str, str] = {}

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
CONDITION = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif|elifdef|elifndef)\b(.*)")
KNOW_NO_OP = {"schedule", "backend"}
OP_BY_NAME = re.compile(r"&\s*(?:braid::)?ops::k\w+")
ASM = re.compile(r"\b(?:asm|__asm|__asm__)\b")
# Comments, raw strings, strings and characters, in the order in which they can begin.
OPAQUE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^ ()\\\t\n]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'", re.DOTALL)


def code_lines(text, keep_strings):
    """The lines of a C++ text without comments, and without the insides of strings if asked."""
    def blank(match):
        token = match.group()
        if keep_strings and not token.startswith(("//", "/*")):
            return token
        return " " + "\n" * token.count("\n")
    return OPAQUE.sub(blank, text).split("\n")


def check_include(path, folder, line, form, target):
    if not target.startswith("braid/"):
        if form == '"':
            yield line, "quoted", f'"{target}" is not written from the root as "braid/..."'
        return
    parts = target.split("/")
    if parts[1] not in ORDER:
        yield line, "order", f"{parts[1]} is not a folder of the order"
    elif parts[1] not in ALLOWED[folder]:
        allowed = ", ".join(other for other in ORDER if other in ALLOWED[folder])
        yield line, "order", f"{folder}/ includes {target}; it may include {allowed}"
    others = BACKENDS.intersection(parts[2:-1]) - set(path.parts)
    if others and BACKENDS.intersection(path.parts):
        yield line, "backend", f"{target} belongs to another backend"


def check_braid_source(path, text):
    """Rules for a file of src/braid; path is relative to that folder."""
    folder = path.parts[0]
    if folder not in ORDER:
        yield 1, "order", f"{folder} is not a folder of the order"
        return
    with_strings = code_lines(text, keep_strings=True)
    for number, line in enumerate(with_strings, 1):
        if match := INCLUDE.match(line):
            yield from check_include(path, folder, number, *match.groups())
        if folder in KNOW_NO_OP and (op := OP_BY_NAME.search(line)):
            yield number, "ops", f"{op.group()} is named; traits are asked of the OpDef"
        if (match := CONDITION.match(line)) and folder not in MAY_ASK_BACKEND:
            if macro := BACKEND_MACRO.search(match.group(1)):
                yield number, "ifdef", f"{macro.group()} is asked outside backend, fabric, kernels"


def check_source(path, text, long_files):
    """Rules for any source; path is relative to the root of the tree."""
    parts = path.parts
    if path.suffix != ".py":
        code = code_lines(text, keep_strings=False)
        if parts[:5] != ("src", "braid", "kernels", "cuda", "ptx"):
            for number, line in enumerate(code, 1):
                if ASM.search(line):
                    yield number, "asm", "asm outside src/braid/kernels/cuda/ptx"
        if path.suffix in {".h", ".cuh"}:
            first = next(((n, line) for n, line in enumerate(code, 1) if line.strip()), (1, ""))
            if first[1].split() != ["#pragma", "once"]:
                yield first[0], "pragma", "the header's first code line is not #pragma once"
    lines = text.count("\n")
    listed = path.as_posix() in long_files
    if lines > MAX_LINES and not listed:
        yield lines, "length", f"{lines} lines, over {MAX_LINES}: split it or give a reason"
    if lines <= MAX_LINES and listed:
        yield lines, "length", f"{lines} lines: its entry in LONG_FILES has no more use"
    if parts[:2] == ("src", "braid") and len(parts) > 3:
        yield from check_braid_source(path.relative_to("src/braid"), text)


def check_cmake(path, text):
    """braid_library(name DEPENDS ...) and the order of add_subdirectory in src/braid."""
    if len(path.parts) == 3:
        last = -1
        for number, line in enumerate(text.split("\n"), 1):
            match = re.match(r"\s*add_subdirectory\((\w+)", line)
            if not match:
                continue
            if match.group(1) not in ORDER:
                yield number, "cmake", f"{match.group(1)} is not a folder of the order"
                continue
            index = ORDER.index(match.group(1))
            if index < last:
                yield number, "cmake", f"{match.group(1)} comes before {ORDER[last]} in the order"
            last = max(last, index)
        return
    folder = path.parts[2]
    for match in re.finditer(r"braid_library\(\s*\w+\s+DEPENDS\s+([^)]*?)(?:LIBRARIES[^)]*)?\)", text):
        number = text.count("\n", 0, match.start()) + 1
        for name in match.group(1).split():
            other = name.split("_")[0]
            if folder in ORDER and other not in ALLOWED[folder]:
                yield number, "cmake", f"{folder} may not depend on braid_{name}"


def check(root, long_files):
    """All breaches under root as sorted (path, line, rule, message)."""
    root = pathlib.Path(root)
    found = []
    for path in sorted(p for top in ROOTS for p in (root / top).rglob("*") if p.is_file()):
        relative = path.relative_to(root)
        if path.name == "CMakeLists.txt" and relative.parts[:2] == ("src", "braid"):
            breaches = check_cmake(relative, path.read_text())
        elif path.suffix in SOURCES:
            try:
                breaches = check_source(relative, path.read_text(), long_files)
            except UnicodeDecodeError as error:
                breaches = [(1, "length", f"not UTF-8: {error}")]
        else:
            continue
        found += [(relative.as_posix(), *breach) for breach in breaches]
    found += [(name, 1, "length", "stands in LONG_FILES and does not exist")
              for name in long_files if not (root / name).is_file()]
    return sorted(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    own_tree = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=pathlib.Path, default=own_tree,
                        help="the tree to check (default: the one this script lies in)")
    args = parser.parse_args()
    if not (args.root / "src" / "braid").is_dir():
        sys.exit(f"check_includes: {args.root}: no src/braid in it")
    found = check(args.root, LONG_FILES if args.root == own_tree else {})
    for path, line, rule, message in found:
        print(f"{path}:{line}: {rule}: {message}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
