"""What cmake/BraidFindCuda.cmake decides for toolkits and GPUs, which are small programs here."""

import os
import pathlib
import subprocess
import tempfile
import unittest

CMAKE = pathlib.Path(__file__).resolve().parents[2] / "cmake"
PROJECT = f"""cmake_minimum_required(VERSION 3.25)
project(p LANGUAGES NONE)
set(CMAKE_CXX_COMPILER g++-x)
set(CMAKE_CXX_COMPILER_VERSION 99)
include({CMAKE}/BraidFindCuda.cmake)
message(STATUS "decided: ${{BRAID_CUDA}} ${{codes}}")
"""


class FindCuda(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        (self.path / "CMakeLists.txt").write_text(PROJECT)

    def program(self, name, text):
        file = self.path / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
        return file

    def nvcc(self, version):
        return self.program("nvcc", f"echo 'Cuda compilation tools, release {version}, V{version}.9'")

    def gpus(self, *capabilities):
        self.program("nvidia-smi", "\n".join(f"echo {c}" for c in capabilities) or "exit 9")

    def configure(self, *options):
        """(CMake's status, its output as one line)"""
        env = {name: value for name, value in os.environ.items() if not name.startswith("CUDA")}
        env["PATH"] = f"{self.path / 'bin'}:{env['PATH']}"
        done = subprocess.run(["cmake", "--fresh", "-S", self.path, "-B", self.path / "build", *options],
                              env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=50)
        return done.returncode, " ".join(done.stdout.split())

    def test_an_old_toolkit_leaves_cuda_out(self):
        self.nvcc("12.0")
        status, text = self.configure()
        self.assertEqual(status, 0)
        self.assertIn("nvcc is CUDA 12.0, the CUDA backend needs 12.4 or newer", text)
        self.assertIn("decided: OFF", text)
        status, text = self.configure("-DBRAID_CUDA=ON")
        self.assertEqual(status, 1)
        self.assertIn("BRAID_CUDA is ON, but", text)

    def test_a_toolkit_that_does_not_work_leaves_cuda_out(self):
        self.program("nvcc", "exit 1")
        status, text = self.configure()
        self.assertEqual(status, 0)
        self.assertIn("nvcc does not run", text)
        self.assertIn("decided: OFF", text)

    def test_a_compiler_that_the_toolkit_does_not_take(self):
        nvcc = self.program("nvcc", "case $* in *--version*) echo release 12.8,;; *) exit 1;; esac")
        for _ in range(2):  # the second configuration looks again
            status, text = self.configure()
            self.assertEqual(status, 0)
            self.assertIn(f"{nvcc} (CUDA 12.8) does not work with g++-x 99", text)

    def test_off_asks_for_nothing(self):
        self.nvcc("13.0")
        status, text = self.configure("-DBRAID_CUDA=OFF")
        self.assertEqual(status, 0)
        self.assertIn("Braid for CPU only: BRAID_CUDA is OFF", text)

    def codes(self, *options):
        status, text = self.configure(f"-DCMAKE_CUDA_COMPILER={self.nvcc('12.8')}", *options)
        self.assertEqual(status, 0, text)
        return text[text.index("decided: ON ") + len("decided: ON "):].split()[0]

    def test_code_for_the_gpus_that_are_there(self):
        for capabilities, codes in ((["9.0", "9.0"], "90a"), (["8.9"], "80"), (["12.0"], "80"),
                                    (["9.0", "8.0"], "80;90a"), (["7.5"], "80;90a"), ([], "80;90a")):
            self.gpus(*capabilities)
            self.assertEqual(self.codes(), codes, capabilities)

    def test_code_that_was_asked_for(self):
        self.gpus("9.0")
        for asked, codes in (("all", "80;90a"), ("native", "90a"), ("80", "80"), ("90", "90a"), ("90a;86", "80;90a")):
            self.assertEqual(self.codes(f"-DCMAKE_CUDA_ARCHITECTURES={asked}"), codes, asked)
        for asked in ("75", "hopper"):
            status, text = self.configure(f"-DCMAKE_CUDA_COMPILER={self.nvcc('12.8')}",
                                          f"-DCMAKE_CUDA_ARCHITECTURES={asked}")
            self.assertEqual(status, 1)
            self.assertIn(f"CMAKE_CUDA_ARCHITECTURES: '{asked}': wanted", text)


if __name__ == "__main__":
    unittest.main()
