"""scripts/run_tests.py on tests that pass, fail, are skipped, or whose program is not there."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "run_tests.py"
SKIP = 'PROPERTIES SKIP_REGULAR_EXPRESSION "Skipped" LABELS'


def skipped(name, reason, label):
    return f"""add_test([=[{name}]=] "printf" "a_test.cc:5: Skipped\\n{reason}\\n\\n")
set_tests_properties([=[{name}]=] {SKIP} "{label}")
"""


PASSES = 'add_test([=[passes]=] "true")\n'
FAILS = 'add_test([=[fails]=] "sh" "-c" "echo the output of it; false")\n'
NO_PROGRAM = 'add_test([=[has/no program]=] "/nonexistent/program")\n'


class RunTests(unittest.TestCase):
    def run_on(self, tests):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "CTestTestfile.cmake").write_text(tests)
            done = subprocess.run([sys.executable, "-B", SCRIPT, folder], capture_output=True, text=True, timeout=50)
        return done.returncode, done.stdout.splitlines()

    def test_passed_and_skipped(self):
        status, lines = self.run_on(PASSES + skipped("a", "no GPU", "gpu") + skipped("b", "no CUDA device", "gpu"))
        self.assertEqual(status, 0)
        self.assertEqual(lines[-2:], ["1 passed, 2 skipped: no GPU here", "1 passed, 0 failed, 2 skipped"])

    def test_several_reasons(self):
        status, lines = self.run_on(PASSES + skipped("a", "no GPU", "gpu") + skipped("b", "0 GPUs", "gpu") +
                                    skipped("c", "root reads all files", "unit"))
        self.assertEqual(status, 0)
        self.assertEqual(lines[-2], "1 passed, 3 skipped: 2 no GPU here, 1 root reads all files")

    def test_failures_are_shown_and_named(self):
        status, lines = self.run_on(PASSES + FAILS + NO_PROGRAM + PASSES.replace("passes", "too"))
        self.assertEqual(status, 1)
        self.assertIn("the output of it", lines)
        self.assertEqual(lines[-4:], ["failed: fails", "failed: has/no program", "2 passed, 2 failed",
                                      "2 passed, 2 failed, 0 skipped"])

    def test_a_folder_without_tests_fails(self):
        status, _ = self.run_on("")
        self.assertEqual(status, 1)


if __name__ == "__main__":
    unittest.main()
