"""Answers, streams, scores and logits of a small random model."""

import asyncio
import gc
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import unittest

import numpy

import braid
import strategies
from support import GRAMMARS, GREEDY, LLAMA, OPTIONS, PROGRAM, ROOT, ModelTest


class Generating(ModelTest):
    def test_the_text_is_the_programs(self):
        run = subprocess.run([PROGRAM, "run", "-m", self.model, "-p", "Once upon", "-n", "12",
                              "--ignore-eos", "--json", "--threads", "1", "--device", "cpu"],
                             capture_output=True, text=True, timeout=120, check=True)
        want = json.loads(run.stdout)
        got = self.llm.generate("Once upon", GREEDY)[0]
        self.assertEqual(got.text, want["text"])
        self.assertEqual(got.outputs[0].token_ids, want["output_ids"])
        self.assertEqual(got.prompt_token_ids, want["prompt_ids"])
        self.assertEqual(got.outputs[0].finish_reason, "length")
        self.assertEqual(got.outputs[0].usage["completion_tokens"], 12)

    def test_the_example_prints_the_programs_text(self):
        command = [PROGRAM, "run", "-m", self.model, "-p", "Once upon", "-n", "16", "--json"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        text = json.loads(run.stdout)["text"]
        example = [sys.executable, str(ROOT / "examples/python/generate.py"), self.model]
        got = subprocess.run([*example, "Once upon"], capture_output=True, text=True, timeout=120,
                             check=True)
        self.assertEqual(got.stdout, f"{text}\n{text}\n")

    def test_many_prompts_are_each_alone(self):
        prompts = ["a b", self.llm.tokenizer.encode("second"), "third prompt"] * 5
        outputs = self.llm.generate(prompts, GREEDY)
        self.assertEqual(len(outputs), 15)
        for prompt, output in zip(prompts, outputs):
            self.assertEqual(self.llm.generate([prompt], GREEDY)[0].text, output.text)

    def test_more_prompts_than_the_queue_holds(self):
        with braid.LLM(self.model, **OPTIONS, max_waiting=4) as llm:
            self.assertEqual(len(llm.generate(["a"] * 40, GREEDY)), 40)

    def test_choices_and_seeds(self):
        warm = braid.SamplingParams(n=3, temperature=1.5, seed=4, max_tokens=20, ignore_eos=True)
        first, again = (self.llm.generate("x", warm)[0] for _ in range(2))
        texts = [choice.text for choice in first.outputs]
        self.assertEqual(texts, [choice.text for choice in again.outputs])
        self.assertEqual(len(set(texts)), 3)

    def test_log_probabilities(self):
        params = braid.SamplingParams(max_tokens=3, logprobs=2, prompt_logprobs=0, ignore_eos=True)
        output = self.llm.generate("abc", params)[0]
        for token in output.outputs[0].tokens:
            self.assertEqual(token.top[0], (token.id, token.logprob))  # greedy
            self.assertEqual(len(token.top), 2)
        scores = self.llm.score("abc")
        self.assertEqual(len(scores), 2)
        numpy.testing.assert_allclose([t.logprob for t in output.prompt_logprobs], scores, 1e-5)

    def test_stops(self):
        text = self.llm.generate("q", GREEDY)[0].text
        stop = text[3:5]
        got = self.llm.generate("q", braid.SamplingParams(stop=[stop], max_tokens=12,
                                                          ignore_eos=True))[0].outputs[0]
        self.assertEqual(got.text, text[:text.index(stop)])
        self.assertEqual((got.finish_reason, got.stop), ("stop", stop))

    def test_a_chat_renders_the_models_template(self):
        messages = [{"role": "user", "content": "hi"}]
        got = self.llm.chat(messages, GREEDY)[0]
        self.assertEqual(self.llm.tokenizer.decode(got.prompt_token_ids), "<user>hi<assistant>")
        self.assertEqual(len(self.llm.chat([messages, messages], GREEDY)), 2)
        self.assertEqual("".join(c.text for c in self.llm.stream(
            messages, braid.SamplingParams(temperature=0, max_tokens=5))), self.llm.chat(
                messages, braid.SamplingParams(temperature=0, max_tokens=5))[0].text)

    def test_streams_join_to_the_answer(self):
        stream = self.llm.stream("Once", GREEDY)
        chunks = list(stream)
        self.assertGreater(len(chunks), 3)
        self.assertEqual("".join(c.text for c in chunks), self.llm.generate("Once", GREEDY)[0].text)
        self.assertEqual(stream.end["finish_reason"], "length")
        self.assertEqual(sum(len(c.tokens) for c in chunks), 12)

    def test_leaving_the_loop_cancels(self):
        made = self.llm.stats()["answer_tokens"]
        for _ in self.llm.stream("a", braid.SamplingParams(max_tokens=240, ignore_eos=True)):
            break
        self.idle()
        self.assertLess(self.llm.stats()["answer_tokens"] - made, 200)

    def test_what_binds_an_answer(self):
        if not GRAMMARS:
            self.skipTest("built without grammars")
        schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": -3, "maximum": 300},
                                                   "word": {"enum": ["yes", "no"]}},
                  "required": ["n", "word"], "additionalProperties": False}
        warm = {"temperature": 1.0, "max_tokens": 200}
        def answers(**fields):
            output = self.llm.generate("x", braid.SamplingParams(n=3, seed=3, **warm, **fields))[0]
            self.assertEqual({choice.finish_reason for choice in output.outputs}, {"stop"})
            return [choice.text for choice in output.outputs]
        texts = answers(schema=schema)
        for text in texts:
            value = json.loads(text)
            self.assertEqual(list(value), ["n", "word"])
            self.assertIn(value["n"], range(-3, 301))
            self.assertIn(value["word"], ("yes", "no"))
        self.assertEqual(answers(schema=json.dumps(schema)), texts)
        for text in answers(regex="[a-c]{3}-[0-9]{2,4}"):
            self.assertRegex(text, r"\A[a-c]{3}-[0-9]{2,4}\Z")
        self.assertLessEqual(set(answers(choice=["left", "right"])), {"left", "right"})
        self.assertLessEqual(set(answers(grammar='root ::= "a" | "b"')), {"a", "b"})
        one = braid.SamplingParams(schema=schema, seed=3, **warm)
        chat = [{"role": "user", "content": "x"}]
        streamed = "".join(chunk.text for chunk in self.llm.stream(chat, one))
        self.assertEqual(streamed, self.llm.chat(chat, one)[0].text)
        self.assertEqual(asyncio.run(self.llm.agenerate(chat, one)), streamed)
        json.loads(streamed)

    def test_scores_and_logits(self):
        ids = self.llm.tokenizer.encode("The quick")
        logits = self.llm.logits(ids)
        self.assertEqual((logits.shape, logits.dtype), ((len(ids), 258), numpy.float32))
        rows = logits.astype(numpy.float64)
        top = rows.max(axis=1, keepdims=True)
        logs = rows - top - numpy.log(numpy.exp(rows - top).sum(axis=1, keepdims=True))
        numpy.testing.assert_allclose(self.llm.score(ids), logs[range(len(ids) - 1), ids[1:]], 1e-4)
        logits[:] = 0  # an array of its own

    def test_ids_may_be_an_array(self):
        ids = self.llm.tokenizer.encode("The quick")
        self.assertEqual(self.llm.generate(numpy.array(ids), GREEDY)[0].text,
                         self.llm.generate([ids], GREEDY)[0].text)

    def test_logits_where_the_model_is_are_taken_over_without_a_copy(self):
        ids = list(range(100, 250))  # two steps
        want = self.llm.logits(ids)
        with braid.LLM(self.model, **OPTIONS) as llm:
            made = llm.device_logits(ids)
        self.assertEqual(made.__dlpack_device__(), (1, 0))  # a CPU
        first, second = numpy.from_dlpack(made), numpy.from_dlpack(made)
        self.assertEqual((first.shape, first.dtype), ((150, 258), numpy.float32))
        self.assertTrue(numpy.shares_memory(first, second))
        del made, second
        numpy.testing.assert_array_equal(first, want)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "no PyTorch here")
    def test_pytorch_takes_logits_over(self):
        import torch
        want = self.llm.logits("The quick")
        for made in (self.llm.device_logits("The quick"), want):
            tensor = torch.from_dlpack(made)
            self.assertEqual(tensor.dtype, torch.float32)
            numpy.testing.assert_array_equal(tensor.numpy(), want)

    def test_ranks_divide_prompts(self):
        prompts = ["a" * n for n in (1, 3, 100, 200)] * 2 + ["a longer prompt " * 10] * 2
        want = self.llm.generate(prompts, GREEDY)
        for sp in ("ring", "ulysses"):
            with braid.LLM(self.model, sp=sp, ranks=2, **OPTIONS) as llm:
                got = llm.generate(prompts, GREEDY)
                self.assertEqual([o.text for o in got], [o.text for o in want], sp)
                numpy.testing.assert_allclose(llm.score(prompts[3]), self.llm.score(prompts[3]),
                                              1e-3)
        with braid.LLM(self.model, sp="ring", ranks=2, schedule=strategies.sequence_parallel,
                       **OPTIONS) as llm:
            self.assertEqual([o.text for o in llm.generate(prompts, GREEDY)],
                             [o.text for o in want])

    def test_the_tokenizer(self):
        t = self.llm.tokenizer
        self.assertEqual(t.decode(t.encode("naïve\n")), "naïve\n")
        self.assertEqual((t.piece(256), len(t)), ("<s>", 258))
        self.assertEqual(t.encode("<s>", parse_special=True), [256])

    def test_32_streams_at_once_in_asyncio(self):
        prompts = [f"{i} is prompt {i}" for i in range(32)]
        async def one(llm, i):
            text = ""
            async for chunk in llm.astream(prompts[i], GREEDY):
                text += chunk.text
            return text

        async def all_of_them():
            with braid.LLM(self.model, **OPTIONS | {"max_num_seqs": 32}) as llm:
                texts = await asyncio.gather(*(one(llm, i) for i in range(32)))
                return texts, llm.stats()["steps"]

        async def leave():
            stream = self.llm.astream("a", braid.SamplingParams(max_tokens=240, ignore_eos=True))
            async for _ in stream:
                break
            await stream.aclose()

        got, steps = asyncio.run(asyncio.wait_for(all_of_them(), 120))
        self.assertLess(steps, 32 * 12 / 4)  # they share steps
        self.assertEqual(got, [self.llm.generate(p, GREEDY)[0].text for p in prompts])
        self.assertGreater(len(set(got)), 20)  # a stream mixed up with another would show
        self.assertEqual(asyncio.run(self.llm.agenerate("a", GREEDY)),
                         self.llm.generate("a", GREEDY)[0].text)
        asyncio.run(leave())
        self.idle()

    def test_other_threads_run_meanwhile(self):
        count, going = 0, True

        def work():
            nonlocal count
            while going:
                count += 1
                time.sleep(0)

        thread = threading.Thread(target=work)
        thread.start()
        while count == 0:
            time.sleep(0.001)
        before = count
        self.llm.generate(["a"] * 8, braid.SamplingParams(max_tokens=100, ignore_eos=True))
        self.assertGreater(count - before, 10)
        going = False
        thread.join()

    def test_ctrl_c_ends_cleanly(self):
        for work in ("llm.generate('a', braid.SamplingParams(max_tokens=400, ignore_eos=True))",
                     "list(llm.stream('a', braid.SamplingParams(max_tokens=400, ignore_eos=True)))",
                     "llm.score('a' * 300)", "llm.logits('a' * 300)",
                     "braid.plan(sys.argv[2], tp=8, tokens=8192, schedule=Slow)"):
            with self.subTest(work=work):
                code = ("import braid, sys, time\n"
                        "class Slow(braid.OpScheduler):\n"
                        "    def schedule(self, ctx):\n"
                        "        while True: time.sleep(0.001)\n"
                        "llm = braid.LLM(sys.argv[1], device='cpu', threads=1, max_num_seqs=1)\n"
                        "print('ready', flush=True)\n"
                        "while True:\n"
                        "    " + work + "\n")
                child = subprocess.Popen([sys.executable, "-c", code, self.model, LLAMA],
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                try:
                    self.assertEqual(child.stdout.readline(), "ready\n")
                    time.sleep(0.2)
                    child.send_signal(signal.SIGINT)
                    _, err = child.communicate(timeout=60)
                finally:
                    child.kill()
                self.assertTrue(err.rstrip().endswith("KeyboardInterrupt"), err)
                self.assertEqual(child.returncode, -signal.SIGINT)

    def test_memory_stays_flat(self):
        def rss():
            gc.collect()
            fields = pathlib.Path("/proc/self/statm").read_text().split()
            return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

        def make(n):
            for _ in range(n):
                braid.LLM(self.model, **OPTIONS).generate("a", braid.SamplingParams(max_tokens=1))

        count = int(os.environ.get("BRAID_TEST_OBJECTS", "60"))  # docs/python.md: 1,000
        make(20)
        before = rss()
        make(count)
        grown = rss() - before
        self.assertLess(grown, 30)  # MiB; a model of this size has 10
        if count > 60:
            print(f"{count} LLM objects: {before:.1f} MiB before, {grown:+.1f} MiB after")


if __name__ == "__main__":
    unittest.main()
