"""The package over GPUs; skipped where there is none. Some tests need PyTorch, some two GPUs."""

import gc
import importlib.util
import json
import subprocess
import unittest

import numpy

import braid
import strategies
from support import GREEDY, OPTIONS, PROGRAM, ModelTest

CUDA = OPTIONS | {"device": "cuda:0"}


def count_gpus():
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.count(
            "UUID: GPU-")
    except OSError:
        return 0


GPUS = count_gpus()
PYTORCH = importlib.util.find_spec("torch") is not None


@unittest.skipUnless(GPUS, "no GPU here")
class Cuda(ModelTest):
    def test_the_text_is_the_programs(self):
        run = subprocess.run([PROGRAM, "run", "-m", self.model, "-p", "Once upon", "-n", "12",
                              "--ignore-eos", "--json", "--device", "cuda:0"],
                             capture_output=True, text=True, timeout=120, check=True)
        with braid.LLM(self.model, **CUDA) as llm:
            self.assertEqual(llm.generate("Once upon", GREEDY)[0].text,
                             json.loads(run.stdout)["text"])

    def test_logits_are_near_those_of_the_cpu(self):
        ids = list(range(100, 250))
        with braid.LLM(self.model, **CUDA) as llm:
            got = llm.logits(ids)
        want = self.llm.logits(ids)
        self.assertLess(numpy.abs(got - want).mean(), 0.05 * want.std())

    @unittest.skipUnless(PYTORCH, "no PyTorch here")
    def test_logits_are_a_tensor_of_the_gpu_without_a_copy(self):
        import torch
        ids = list(range(100, 250))
        with braid.LLM(self.model, **CUDA) as llm:
            want = llm.logits(ids)
            made = llm.device_logits(ids)
        self.assertEqual(made.__dlpack_device__(), (2, 0))
        first, second = torch.from_dlpack(made), torch.from_dlpack(made)
        self.assertEqual((first.device.type, first.dtype, tuple(first.shape)),
                         ("cuda", torch.float32, (150, 258)))
        self.assertEqual(first.data_ptr(), second.data_ptr())
        del made, second
        gc.collect()
        numpy.testing.assert_array_equal(first.cpu().numpy(), want)
        self.assertTrue(bool(torch.isfinite(torch.log_softmax(first, 1)).all()))

    @unittest.skipUnless(PYTORCH, "no PyTorch here")
    def test_memory_of_the_gpu_comes_back(self):
        import torch

        def make(n):
            for _ in range(n):
                with braid.LLM(self.model, **CUDA, kv_memory="64M") as llm:
                    llm.generate("a", GREEDY)
                    llm.device_logits("a")

        make(3)
        before = torch.cuda.mem_get_info()[0]
        make(10)
        self.assertLess(before - torch.cuda.mem_get_info()[0], 64 << 20)

    @unittest.skipUnless(GPUS > 1, "fewer than two GPUs here")
    def test_strategies_of_python_run_over_two_gpus(self):
        prompts = [f"{i} is prompt {i}" for i in range(8)]
        options = CUDA | {"device": "cuda:0,1", "tp": 2}
        for python in (strategies.overlap, strategies.tokenweave):
            texts = []
            for schedule in (python.__name__, python):
                with braid.LLM(self.model, schedule=schedule, **options) as llm:
                    texts.append([llm.generate(p, GREEDY)[0].text for p in prompts])
            self.assertEqual(texts[0], texts[1])

    @unittest.skipUnless(GPUS > 1, "fewer than two GPUs here")
    def test_two_gpus_divide_a_prompt(self):
        with braid.LLM(self.model, sp="ring", **CUDA | {"device": "cuda:0,1"}) as llm:
            got = llm.logits("a longer prompt " * 10)
        want = self.llm.logits("a longer prompt " * 10)
        self.assertLess(numpy.abs(got - want).mean(), 0.05 * want.std())


if __name__ == "__main__":
    if not GPUS:
        print("Skipped\nno GPU here")  # for scripts/run_tests.py
    unittest.main()
