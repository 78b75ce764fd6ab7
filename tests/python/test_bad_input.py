"""What is wrong gets one clear error each."""

import math
import subprocess
import threading
import time
import unittest

import braid
from support import GRAMMARS, LLAMA, OPTIONS, PROGRAM, ModelTest


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
        self.refused("prompt 0 has True", lambda: self.llm.generate([[True]]))
        self.refused("prompt 0 has nan", lambda: self.llm.generate([[math.nan]]))
        self.refused("prompt 0 is {1: 2}", lambda: self.llm.generate([{1: 2}]))
        self.refused("prompt 0 is b'a'", lambda: self.llm.generate([b"a"]))
        self.refused("the prompt is None", lambda: self.llm.logits(None))
        self.refused("the prompt is empty", lambda: self.llm.device_logits([]))
        self.refused("messages", lambda: self.llm.chat("hi"))
        self.refused("messages are 3", lambda: self.llm.chat([3]))
        self.refused("a message is 'x'",
                     lambda: self.llm.chat([{"role": "user", "content": "a"}, "x"]))
        self.refused("decode has 'x'", lambda: self.llm.tokenizer.decode(["x"]))
        self.refused("token id 9999", lambda: self.llm.tokenizer.decode([9999]))
        self.refused("token id -1", lambda: self.llm.tokenizer.piece(-1))
        self.refused("piece has 'x'", lambda: self.llm.tokenizer.piece("x"))
        self.refused("encode has 3", lambda: self.llm.tokenizer.encode(3))
        self.assertEqual(self.llm.generate([]), [])

    def test_the_line_is_the_programs(self):
        for arguments, call in (
                (["-m", "nothing.gguf"], lambda: braid.LLM("nothing.gguf")),
                (["-m", self.model, "--schedule", "x"],
                 lambda: braid.LLM(self.model, schedule="x")),
                (["-m", self.model, "--device", "tpu"],
                 lambda: braid.LLM(self.model, device="tpu")),
                (["-m", self.model, "--sp", "ring", "--tp", "2"],
                 lambda: braid.LLM(self.model, sp="ring", tp=2)),
                (["-m", self.model, "--sp", "circle", "--ranks", "2"],
                 lambda: braid.LLM(self.model, sp="circle", ranks=2)),
                (["-m", self.model, "--tp", "1000"], lambda: braid.LLM(self.model, tp=1000))):
            run = subprocess.run([PROGRAM, "run", "-p", "a", *arguments], capture_output=True,
                                 text=True, timeout=60)
            with self.subTest(arguments=arguments), self.assertRaises(braid.Error) as raised:
                call()
            self.assertIn(str(raised.exception), run.stderr)
            self.assertNotEqual(run.returncode, 0)

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
        for fields, text in (
                ({"n": None}, "n is None"), ({"n": 2.0}, "n is 2.0"), ({"stop": 3}, "stop is 3"),
                ({"stop_token_ids": ["x"]}, "stop_token_ids is 'x'"),
                ({"stop_token_ids": 5}, "stop_token_ids is 5"),
                ({"logit_bias": [1]}, "logit_bias is [1]"),
                ({"logit_bias": {"a": 1}}, "logit_bias is 'a'"),
                ({"logit_bias": {1: "b"}}, "logit_bias is 'b'"),
                ({"frequency_penalty": None}, "frequency_penalty is None"),
                ({"max_tokens": 2**40}, "2**31 - 1"), ({"logprobs": -3}, "logprobs is -3"),
                ({"min_tokens": None}, "min_tokens is None"),
                ({"ignore_eos": 1}, "ignore_eos is 1"), ({"seed": 2**64}, "2**64 - 1"),
                ({"temperature": "hot"}, "temperature is 'hot'"),
                ({"schema": {}, "regex": "a"}, "regex beside schema"),
                ({"schema": {"const": nan}}, "schema is no JSON"), ({"regex": 3}, "regex is 3"),
                ({"choice": "ab"}, "choice is 'ab'"), ({"choice": [3]}, "choice has 3"),
                ({"grammar": "root ::= \"a\"", "min_tokens": 2}, "min_tokens beside grammar"),
                ({"regex": "a", "ignore_eos": True}, "ignore_eos beside regex")):
            with self.subTest(fields=fields):
                self.refused(text, lambda f=fields: braid.SamplingParams(**f))
        for bias in ({258: 1.0}, {1: math.nan}):
            params = braid.SamplingParams(logit_bias=bias)
            self.refused("logit-bias", lambda p=params: self.llm.generate("a", p))
        self.refused("a stop text is empty",
                     lambda: self.llm.generate("a", braid.SamplingParams(stop="")))

    def test_what_binds_an_answer(self):
        if not GRAMMARS:
            params = braid.SamplingParams(regex="a")
            self.refused("built without grammars", lambda: self.llm.generate("a", params),
                         "unsupported")
            return
        for fields, text in (({"schema": {"type": "object", "not": {}}}, "not is not supported"),
                             ({"regex": "(a"}, "regex: the regular expression, character 2"),
                             ({"choice": []}, "choice is empty"),
                             ({"grammar": "root ::="}, "EBNF")):
            with self.subTest(fields=fields):
                params = braid.SamplingParams(**fields)
                self.refused(text, lambda p=params: self.llm.generate("a", p))
        params = braid.SamplingParams(schema="{")
        self.refused("schema", lambda: self.llm.generate("a", params), "malformed")

    def test_models_and_devices(self):
        self.refused("nothing", lambda: braid.LLM(self.model + "/nothing.gguf"), "not_found")
        self.refused("device", lambda: braid.LLM(self.model, device="tpu"))
        self.refused("does not exist", lambda: braid.LLM(self.model, schedule="does not exist"))
        self.refused("schedule is 3", lambda: braid.LLM(self.model, schedule=3))
        self.refused("--kv-memory", lambda: braid.LLM(self.model, kv_memory="much"))
        self.refused("wanted at least 1", lambda: braid.LLM(self.model, tp=0))
        self.refused("tp is 'two'", lambda: braid.LLM(self.model, tp="two"))
        self.refused("ranks is 1.5", lambda: braid.LLM(self.model, sp="ring", ranks=1.5))
        self.refused("the model is 3", lambda: braid.LLM(3))
        self.refused("device is None", lambda: braid.LLM(self.model, device=None))
        self.refused("max_model_len is -1", lambda: braid.LLM(self.model, max_model_len=-1))
        self.refused("config", lambda: braid.plan(3))
        self.refused("--sp ring divides", lambda: braid.plan(LLAMA, sp="ring"))
        self.refused("circle", lambda: braid.plan(LLAMA, sp="circle", tp=2))
        self.refused("does not go with --sp",
                     lambda: braid.plan(LLAMA, sp="ring", tp=2, schedule="auto"))
        self.refused("--tokens is -1", lambda: braid.plan(LLAMA, tokens=-1))

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


if __name__ == "__main__":
    unittest.main()
