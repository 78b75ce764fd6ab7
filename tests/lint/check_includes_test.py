"""Proves that tools/check_includes.py catches what it is for, and nothing else.

Writes a small bad tree: a line that breaks a rule ends in `// BAD: rule`; the checker has to report
exactly these lines.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
sys.dont_write_bytecode = True
import check_includes  # noqa: E402

TREE = {
    "src/braid/tensor/view.h": """\
// A comment before the guard is fine.
#pragma once
#include <vector>
#include "braid/base/error.h"
#include "braid/tensor/dtype.h"
#include "braid/ops/linear.h"  // BAD: order
#include "dtype.h"  // BAD: quoted
""",
    "src/braid/io/gguf.cc": """\
#include "braid/tensor/view.h"
#include "braid/program/program.h"  // BAD: order
""",
    "src/braid/schedule/cost_model.cc": """\
#include "braid/ops/linear.h"
bool a = op.def == &ops::kLinear;  // BAD: ops
bool b = &op.def->kind != & braid::ops::kLinear.kind;  // BAD: ops
bool c = op.inputs[ops::kSyncArrivals] >= 0;  // not &ops::kSync
""",
    "src/braid/parallel/lowering.cc": "bool a = op.def == &ops::kLinear;\n",
    "src/braid/runtime/executor.cc": """\
#include "braid/kernels/cpu/table.h"
#include "braid/io/gguf.h"  // BAD: order
""",
    "src/braid/model/llama.cc": """\
#include "braid/io/gguf.h"
#include "braid/ops/linear.h"
#include "braid/parallel/mesh.h"  // BAD: order
#include "braid/engine/engine.h"  // BAD: order
#ifdef BRAID_CUDA  // BAD: ifdef
#endif
#if defined(__AVX2__)  // BAD: ifdef
#elif defined(NDEBUG)
#endif
""",
    "src/braid/engine/engine.cc": """\
#include "braid/model/llama.h"
#include "braid/io/gguf.h"
#include "braid/server/routes.h"  // BAD: order
#include "braid/utils/strings.h"  // BAD: order
""",
    "src/braid/kernels/cpu/gemv.cc": """\
#include "braid/ops/linear.h"
#include "braid/kernels/cuda/tile/tile.h"  // BAD: backend
#ifdef __AVX512F__
#endif
void f() { asm volatile("" ::: "memory"); }  // BAD: asm
const char* a = "asm in a string"; /* asm
in a comment */ int n = 1'000; char q = '"';
const char* raw = R"x(asm " volatile)x"; void g() { __asm__(""); }  // BAD: asm
""",
    "src/braid/kernels/cuda/ptx/fence.h": """\
#pragma once
inline void fence() { asm volatile("fence.sc.sys;"); }
""",
    "src/braid/utils/strings.cc": "int x;  // BAD: order\n",
    "apps/cli/flags.h": "#include <string>  // BAD: pragma\n#pragma once\n",
    "tests/unit/io/big.cc": "int x;\n" * 400 + "int y;  // BAD: length\n",
    "tests/unit/io/excused.cc": "int x;\n" * 401,
    "tests/unit/io/shrunk.cc": "int x;  // BAD: length\n",
    "src/braid/CMakeLists.txt": """\
add_subdirectory(base)
add_subdirectory(io)
add_subdirectory(ops)  # BAD: cmake
""",
    "src/braid/ops/CMakeLists.txt": "braid_library(ops DEPENDS tensor program)\n",
    "src/braid/io/CMakeLists.txt": """\
braid_library(io DEPENDS tensor
              LIBRARIES PkgConfig::ONIGURUMA)
braid_library(io DEPENDS ops)  # BAD: cmake
""",
}
LONG_FILES = {"tests/unit/io/excused.cc": "a table", "tests/unit/io/shrunk.cc": "was long once"}


class CheckIncludesTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)

    def write(self, tree):
        for name, text in tree.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def test_reports_exactly_the_bad_lines(self):
        self.write(TREE)
        expected = sorted((name, number, match.group(1)) for name, text in TREE.items()
                          for number, line in enumerate(text.split("\n"), 1)
                          if (match := re.search(r"(?://|#) BAD: (\w+)", line)))
        found = [breach[:3] for breach in check_includes.check(self.root, LONG_FILES)]
        self.assertEqual(found, expected)

    def test_program_exits_1_and_names_file_and_line(self):
        self.write({"src/braid/io/a.cc": '\n#include "braid/ops/linear.h"\n'})
        result = self.run_program()
        self.assertEqual(result.returncode, 1)
        self.assertIn("src/braid/io/a.cc:2: order: io/ includes braid/ops/linear.h", result.stdout)

    def test_program_exits_0_on_a_good_tree(self):
        self.write({"src/braid/io/a.cc": '#include "braid/base/error.h"\n'})
        result = self.run_program()
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_a_tree_without_sources_is_refused(self):
        self.assertEqual(self.run_program().returncode, 1)

    def test_listed_file_that_does_not_exist(self):
        found = check_includes.check(self.root, {"src/gone.cc": "reason"})
        self.assertEqual([breach[:3] for breach in found], [("src/gone.cc", 1, "length")])

    def run_program(self):
        return subprocess.run([sys.executable, TOOLS / "check_includes.py", "--root", self.root],
                              capture_output=True, text=True, timeout=60)


if __name__ == "__main__":
    unittest.main()
