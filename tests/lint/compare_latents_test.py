"""Proves that tools/compare_latents.py finds steps that are further apart than the bound."""

import array
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "compare_latents.py"


def dump(path, steps):
    """What --dump-latents writes of one picture with these latents."""
    header, data = {}, b""
    for i, step in enumerate(steps):
        values = array.array("f", step).tobytes()
        header[f"0.{i}"] = {"dtype": "F32", "shape": [len(step), 1],
                            "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class CompareLatents(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.one = [[1, -1, 2], [2, -2, 3], [4, -4, 5]]
        dump(self.folder / "one", self.one)
        dump(self.folder / "f32", [[1, -1, 2], [2.01, -2, 3], [4.02, -4, 5]])

    def run_on(self, steps):
        dump(self.folder / "other", steps)
        result = subprocess.run([sys.executable, "-B", str(TOOL), "one", "other", "--bound", "f32"],
                                cwd=self.folder, capture_output=True, text=True, timeout=60)
        return result.returncode, result.stdout, result.stderr

    def test_equal_runs(self):
        code, out, _ = self.run_on(self.one)
        self.assertEqual(code, 0)
        self.assertIn("| other | 0.00e+00 | 0.00e+00 | 0.00e+00 |", out)

    def test_within_the_bound(self):
        self.assertEqual(self.run_on([[1, -1, 2], [2, -2.005, 3], [4, -4.01, 5]])[0], 0)

    def test_a_step_beyond(self):
        for wrong in ([2, -2, 3.1], [2, -2, float("nan")]):
            code, _, error = self.run_on([self.one[0], wrong, self.one[2]])
            self.assertEqual(code, 1)
            self.assertIn("larger than the bound", error)

    def test_other_steps(self):
        code, _, error = self.run_on(self.one[:2])
        self.assertEqual(code, 1)
        self.assertIn("other numbers of steps", error)


if __name__ == "__main__":
    unittest.main()
