"""What the tests of the package share: a model, and how an error is looked at."""

import os
import pathlib
import subprocess
import tempfile
import time
import unittest

import braid
import tiny_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ["BRAID_PROGRAM"]
LLAMA = str(ROOT / "configs/llama-3-8b.json")
GRAMMARS = "xgrammar" in subprocess.run([PROGRAM, "--version"], capture_output=True, text=True,
                                        check=True).stdout
GREEDY = braid.SamplingParams(max_tokens=12, ignore_eos=True)
OPTIONS = {"device": "cpu", "threads": 1, "max_model_len": 256, "max_num_seqs": 8,
           "max_step_tokens": 128}


class ModelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = tiny_model.write(cls.folder.name + "/tiny")
        cls.llm = braid.LLM(cls.model, **OPTIONS)

    @classmethod
    def tearDownClass(cls):
        cls.llm.close()
        cls.folder.cleanup()

    def refused(self, text, call, code="invalid_argument"):
        with self.assertRaises(braid.Error) as raised:
            call()
        self.assertIn(text, str(raised.exception))
        self.assertEqual(raised.exception.code, code)
        return str(raised.exception)

    def idle(self):
        deadline = time.monotonic() + 60
        while self.llm.stats()["running"] + self.llm.stats()["waiting"] > 0:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
