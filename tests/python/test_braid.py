"""The package `braid` on a small random model: answers, streams, strategies, plans, bad input."""

import asyncio
import gc
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy

import braid
import strategies
import tiny_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ["BRAID_PROGRAM"]
LLAMA = str(ROOT / "configs/llama-3-8b.json")
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


class Generating(ModelTest):
    def test_the_text_is_the_programs(self):
        run = subprocess.run([PROGRAM, "run", "-m", self.model, "-p", "Once upon", "-n", "12",
                              "--ignore-eos", "--json", "--threads", "1"], capture_output=True,
                             text=True, timeout=120, check=True)
        want = json.loads(run.stdout)
        got = self.llm.generate("Once upon", GREEDY)[0]
        self.assertEqual(got.text, want["text"])
        self.assertEqual(got.outputs[0].token_ids, want["output_ids"])
        self.assertEqual(got.prompt_token_ids, want["prompt_ids"])
        self.assertEqual(got.outputs[0].finish_reason, "length")
        self.assertEqual(got.outputs[0].usage["completion_tokens"], 12)

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

    def test_scores_and_logits(self):
        ids = self.llm.tokenizer.encode("The quick")
        logits = self.llm.logits(ids)
        self.assertEqual((logits.shape, logits.dtype), ((len(ids), 258), numpy.float32))
        rows = logits.astype(numpy.float64)
        top = rows.max(axis=1, keepdims=True)
        logs = rows - top - numpy.log(numpy.exp(rows - top).sum(axis=1, keepdims=True))
        numpy.testing.assert_allclose(self.llm.score(ids), logs[range(len(ids) - 1), ids[1:]], 1e-4)
        logits[:] = 0  # an array of its own

    def test_the_tokenizer(self):
        t = self.llm.tokenizer
        self.assertEqual(t.decode(t.encode("naïve\n")), "naïve\n")
        self.assertEqual((t.piece(256), len(t)), ("<s>", 258))
        self.assertEqual(t.encode("<s>", parse_special=True), [256])

    def test_32_streams_at_once_in_asyncio(self):
        prompts = [f"prompt {i}" for i in range(32)]

        async def all_of_them():
            return await asyncio.gather(*(self.llm.agenerate(p, GREEDY) for p in prompts))

        async def leave():
            stream = self.llm.astream("a", braid.SamplingParams(max_tokens=240, ignore_eos=True))
            async for _ in stream:
                break
            await stream.aclose()

        got = asyncio.run(asyncio.wait_for(all_of_them(), 120))
        self.assertEqual(got, [o.text for o in self.llm.generate(prompts, GREEDY)])
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
        code = ("import braid, sys\n"
                "llm = braid.LLM(sys.argv[1], device='cpu', threads=1, max_num_seqs=1)\n"
                "print('ready', flush=True)\n"
                "while True:\n"
                "    llm.generate('a', braid.SamplingParams(max_tokens=400, ignore_eos=True))\n")
        child = subprocess.Popen([sys.executable, "-c", code, self.model], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
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

        make(20)
        before = rss()
        make(60)
        self.assertLess(rss() - before, 30)  # MiB; a model of this size has 10


class BadInput(ModelTest):
    def test_prompts(self):
        self.refused("prompt 1 is 2.5", lambda: self.llm.generate(["a", 2.5]))
        self.refused("prompt 0 is None", lambda: self.llm.generate([None]))
        self.refused("prompts are 7", lambda: self.llm.generate(7))
        self.refused("prompt 0 has 'b'", lambda: self.llm.generate([["b", "c"]]))
        self.refused("token id 258", lambda: self.llm.generate([[258]]))
        self.refused("token id -1", lambda: self.llm.score([-1, 2]))
        self.refused("has 4294967296", lambda: self.llm.generate([[2**32]]))
        self.refused("is empty", lambda: self.llm.generate([""]))
        self.refused("at most 255 fit", lambda: self.llm.generate("a" * 300))
        self.refused("wanted at least 2", lambda: self.llm.score([1]))
        self.refused("wanted a role", lambda: self.llm.chat([{"role": "user", "content": 3}]))
        self.assertEqual(self.llm.generate([]), [])

    def test_sampling(self):
        nan = float("nan")
        for name, value in {"temperature": nan, "top_p": nan, "min_p": 2.0, "top_p ": 0.0,
                            "repetition_penalty": math.inf, "frequency_penalty": nan,
                            "presence_penalty": 1000.0}.items():
            params = braid.SamplingParams(**{name.strip(): value})
            self.refused(name.strip().replace("_", "-"), lambda p=params: self.llm.generate("a", p))
        self.refused("max_tokens is 0",
                     lambda: self.llm.generate("a", braid.SamplingParams(max_tokens=0)))
        self.refused("top_k is 'x'", lambda: braid.SamplingParams(top_k="x"))
        self.refused("n is 0", lambda: braid.SamplingParams(n=0))
        self.refused("seed is -1", lambda: braid.SamplingParams(seed=-1))
        self.refused("stop has 3", lambda: braid.SamplingParams(stop=[3]))
        self.refused("a stop text is empty",
                     lambda: self.llm.generate("a", braid.SamplingParams(stop="")))

    def test_models_and_devices(self):
        self.refused("nothing", lambda: braid.LLM(self.model + "/nothing.gguf"), "not_found")
        self.refused("device", lambda: braid.LLM(self.model, device="tpu"))
        self.refused("does not exist", lambda: braid.LLM(self.model, schedule="does not exist"))
        self.refused("schedule is 3", lambda: braid.LLM(self.model, schedule=3))
        self.refused("--kv-memory", lambda: braid.LLM(self.model, kv_memory="much"))
        self.refused("wanted at least 1", lambda: braid.LLM(self.model, tp=0))

    def test_a_closed_model(self):
        llm = braid.LLM(self.model, **OPTIONS)
        stream = llm.stream("a", braid.SamplingParams(max_tokens=200, ignore_eos=True))
        waiting = iter(stream)
        next(waiting)
        llm.close()
        list(waiting)
        self.assertEqual(stream.end["finish_reason"], "abort")
        llm.close()
        for call in (lambda: llm.generate("a"), lambda: llm.score("ab"), lambda: llm.stream("a"),
                     lambda: llm.tokenizer.encode("a"), llm.stats, lambda: llm.logits("a")):
            self.refused("is closed", call, "aborted")

    def test_one_model_fewer_while_another_answers(self):
        llm = braid.LLM(self.model, **OPTIONS)
        thread = threading.Thread(target=lambda: time.sleep(0.02) or llm.close())
        thread.start()
        try:
            llm.generate(["a"] * 50, braid.SamplingParams(max_tokens=200, ignore_eos=True))
        except braid.Error as error:
            self.assertIn(error.code, ("aborted",))
        thread.join()


class Strategies(ModelTest):
    def test_those_of_braid_in_python_give_the_same_schedules(self):
        for tp, tokens, decodes in ((2, 512, 0), (4, 1000, 3), (8, 1, 8)):
            for python in strategies.ALL:
                with self.subTest(strategy=python.__name__, tp=tp, tokens=tokens):
                    step = {"tp": tp, "tokens": tokens, "decodes": decodes}
                    want = braid.plan(LLAMA, schedule=python.__name__, **step)
                    got = braid.plan(LLAMA, schedule=python(), **step)
                    self.assertEqual(got.hash, want.hash)
                    self.assertEqual(got.launches, want.launches)

    def test_a_strategy_runs_a_model_and_is_asked_once_a_size(self):
        asked = []

        class Counted(strategies.overlap):
            def schedule(self, ctx):
                asked.append(ctx.micro_batches)
                super().schedule(ctx)

        options = OPTIONS | {"tp": 2}
        with braid.LLM(self.model, **options) as llm:
            want = [o.text for o in llm.generate(["a b c d"] * 3, GREEDY)]
        with braid.LLM(self.model, schedule=Counted(), **options) as llm:
            got = [o.text for o in llm.generate(["a b c d"] * 3, GREEDY)]
            steps, asked_first = llm.stats()["steps"], len(asked)
            llm.generate(["a b c d"] * 3, GREEDY)
            self.assertGreater(llm.stats()["steps"], steps)
            self.assertEqual(len(asked), asked_first)
        self.assertEqual(got, want)
        self.assertGreater(len(asked), 0)
        self.assertLess(len(asked), 2 * steps)

    def test_names(self):
        @braid.register
        class ByName(strategies.overlap):
            pass

        self.assertEqual(braid.plan(LLAMA, tp=2, schedule="ByName").data["strategy"], "ByName")
        self.refused("wanted a class", lambda: braid.register(3))

    def test_what_a_strategy_raises_ends_its_plan(self):
        class Raises(braid.OpScheduler):
            def schedule(self, ctx):
                return 1 // 0

        message = self.refused("ZeroDivisionError", lambda: braid.plan(LLAMA, schedule=Raises()))
        self.assertIn("return 1 // 0", message)
        self.assertIn("test_braid.py", message)
        self.assertIn("Raises", message)
        with braid.LLM(self.model, schedule=Raises, **OPTIONS) as llm:
            self.refused("ZeroDivisionError", lambda: llm.generate("a"), "aborted")

    def test_strategies_that_lead_nowhere(self):
        class Nothing(braid.OpScheduler):
            def schedule(self, ctx):
                pass

        class Asks(braid.OpScheduler):
            def schedule(self, ctx):
                while not ctx.done():
                    ctx.ready(0)

        class Twice(braid.OpScheduler):
            def schedule(self, ctx):
                task = ctx.ready(0)
                ctx.execute(task)
                ctx.execute(task)

        class NotReady(strategies.overlap):
            def schedule(self, ctx):
                tasks = ctx.ready(0)
                ctx.execute([ctx.twin(tasks[0], 7)])

        class Junk(braid.OpScheduler):
            def split(self, batch):
                return "junk"

        class Gaps(strategies.sequential):
            def split(self, batch):
                return [(0, 3), (5, batch.tokens)]

        class Stream(braid.OpScheduler):
            def schedule(self, ctx):
                ctx.execute(ctx.ready(0), stream="fast")

        class Abstract(braid.OpScheduler):
            pass

        for strategy, text in ((Nothing, "never executed"), (Asks, ""), (Twice, ""), (NotReady, ""),
                               (Junk, "wanted a list"), (Gaps, ""), (Stream, "stream 'fast'"),
                               (Abstract, "has no schedule(ctx)")):
            with self.subTest(strategy=strategy.__name__):
                self.refused(text, lambda s=strategy: braid.plan(LLAMA, tp=2, schedule=s()))

    def test_a_context_ends_with_its_call(self):
        kept = []

        class Keeps(strategies.overlap):
            def partition(self, rules):
                kept.append(rules)
                super().partition(rules)

            def schedule(self, ctx):
                kept.extend([ctx, ctx.ready(0)[0]])
                super().schedule(ctx)

        braid.plan(LLAMA, tp=2, schedule=Keeps())
        self.refused("after the call", lambda: kept[0].mark("a"))
        self.refused("after the call", lambda: kept[1].done())
        self.refused("after the call", lambda: kept[2].scope)


class Planning(unittest.TestCase):
    def test_the_data_are_the_programs(self):
        run = subprocess.run([PROGRAM, "plan", "--config", LLAMA, "--tp", "4", "--tokens", "1024",
                              "--schedule", "tokenweave", "--launches", "--json"],
                             capture_output=True, text=True, timeout=120, check=True)
        want = json.loads(run.stdout)
        got = braid.plan(LLAMA, tp=4, tokens=1024, schedule="tokenweave", compare=True)
        self.assertEqual(str(got), want.pop("listing"))
        self.assertEqual(got.data, want)
        self.assertEqual(len(got.launches), want["launches"])
        self.assertEqual(repr(got).split(":")[0], "<Plan tokenweave")

    def test_a_plan_draws_itself(self):
        svg = braid.plan(LLAMA, tp=2, schedule="overlap")._repr_svg_()
        for text in ("<svg", "compute", "comm", "computation", "communication", "all_reduce"):
            self.assertIn(text, svg)


if __name__ == "__main__":
    unittest.main()
