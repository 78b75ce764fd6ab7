"""Strategies of Python, and plans as data."""

import json
import subprocess
import threading
import unittest

import braid
import strategies
from support import GREEDY, LLAMA, OPTIONS, PROGRAM, ModelTest


class Strategies(ModelTest):
    def test_those_of_braid_in_python_give_the_same_schedules(self):
        self.assertEqual([s.__name__ for s in strategies.ALL], braid.strategies())
        steps = [{"tp": 2}, {"tp": 4, "tokens": 1000, "decodes": 3},
                 {"tp": 8, "tokens": 1, "decodes": 8}, {"tp": 4, "sp": "ring", "tokens": 1000},
                 {"tp": 4, "sp": "torus", "machines": "2x2", "depth": 300}]
        for step in steps:
            for python in strategies.ALL:
                with self.subTest(strategy=python.__name__, step=step):
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
            # A single request has the same steps each time, once its prompt's keys are cached; how
            # several share steps depends on when they arrive.
            llm.generate(["a b c d"], GREEDY)
            steps, asked_first = llm.stats()["steps"], len(asked)
            llm.generate(["a b c d"], GREEDY)
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
        self.assertIn("test_strategies.py", message)
        self.assertIn("Raises", message)
        with braid.LLM(self.model, schedule=Raises, **OPTIONS) as llm:
            for _ in range(2):
                message = self.refused("ZeroDivisionError", lambda: llm.generate("a"), "aborted")
                self.assertIn("return 1 // 0", message)

    def test_a_model_goes_on_after_a_strategy_that_raised(self):
        class Picky(strategies.sequential):
            def schedule(self, ctx):
                if ctx.tokens(0) > 32:
                    raise ValueError(f"{ctx.tokens(0)} tokens are too many for me")
                super().schedule(ctx)

        want = self.llm.generate("short", GREEDY)[0].text
        with braid.LLM(self.model, schedule=Picky, **OPTIONS) as llm:
            for _ in range(2):
                self.refused("too many for me", lambda: llm.generate("a" * 100), "aborted")
                self.refused("too many for me", lambda: llm.score("a" * 100), "aborted")
                self.assertEqual(llm.generate("short", GREEDY)[0].text, want)

    def test_a_strategy_that_never_returns_does_not_keep_its_model_open(self):
        begun = threading.Event()

        class Forever(braid.OpScheduler):
            def schedule(self, ctx):
                begun.set()
                while True:
                    pass

        llm = braid.LLM(self.model, schedule=Forever, **OPTIONS)
        stream = llm.stream("a", GREEDY)
        self.assertTrue(begun.wait(60))
        llm.close()
        self.assertEqual(stream.end, None)
        with self.assertRaises(braid.Error):
            list(stream)

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


class Words(unittest.TestCase):
    def test_every_public_name_says_what_it_is(self):
        for name in braid.__all__:
            public = getattr(braid, name)
            if isinstance(public, str):
                continue
            self.assertTrue(public.__doc__, name)
            if not isinstance(public, type):
                continue
            for member, value in vars(public).items():
                if callable(value) or isinstance(value, property) or hasattr(value, "__get__"):
                    if not member.startswith("_"):
                        self.assertTrue(value.__doc__, f"{name}.{member}")


if __name__ == "__main__":
    unittest.main()
