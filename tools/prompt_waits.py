#!/usr/bin/env python3
"""Measures how long prompts make others wait in `braid serve`, and what a second turn costs.

  tools/prompt_waits.py                        4,096 tokens among 16 streams, the demo model

In each round, one after another: a long prompt alone; the same among streams, with a short prompt
three steps later; the second turn of a chat with and without its first turn in the prefix cache.
Exits with 1 where a target is missed: gaps between tokens of the streams (P99) 1.25 times
--max-step-ms, the short prompt's first step within three, the long prompt 1.5 times its time alone,
95% of the second turn's prompt found, and its first token after 0.15 times the time without.
"""

import argparse
import http.client
import json
import random
import statistics
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True

import served  # noqa: E402


class Stream(threading.Thread):
    """A streamed answer: when each event came, and the last usage."""

    def __init__(self, port, path, body):
        super().__init__()
        self.times, self.usage, self.text, self.ended = [], None, "", threading.Event()
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        body = {**body, "stream": True, "temperature": 0, "ignore_eos": True,
                "stream_options": {"include_usage": True}}
        self.begin = time.monotonic()
        self.connection.request("POST", path, json.dumps(body),
                                {"Content-Type": "application/json"})
        self.start()

    def run(self):
        try:
            answer = self.connection.getresponse()
            if answer.status != 200:
                raise RuntimeError(answer.read().decode())
            for line in answer:
                if self.ended.is_set():
                    break
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                if event.get("usage"):
                    self.usage = event["usage"]
                for choice in event["choices"]:
                    self.text += choice.get("delta", {}).get("content") or ""
                    if choice["finish_reason"] is None or not self.times:
                        self.times.append(time.monotonic())
        finally:
            self.connection.close()

    def first(self):
        """Seconds to the first token, once the answer has ended."""
        self.join()
        return self.times[0] - self.begin

    def stop(self):
        self.ended.set()
        self.join()


def ids(o, n):
    return [o.random.randrange(100, 40000) for _ in range(n)]


def ask(o, port, n):
    return Stream(port, "/v1/completions", {"prompt": ids(o, n), "max_tokens": 1})


def wait_for_tokens(streams, n):
    while any(len(s.times) < n for s in streams):
        if not all(s.is_alive() for s in streams):
            raise RuntimeError("a stream ended early")
        time.sleep(0.001)


def p99(values):
    return sorted(values)[int(0.99 * (len(values) - 1))]


def among_streams(o, port):
    """Gaps between tokens (s), steps until the short prompt's token came, the long prompt's time."""
    streams = [Stream(port, "/v1/completions", {"prompt": ids(o, 64), "max_tokens": 4000})
               for _ in range(o.streams)]
    try:
        wait_for_tokens(streams, 30)
        long_one = ask(o, port, o.prompt)
        wait_for_tokens(streams, len(streams[0].times) + 3)
        quick = ask(o, port, 60)
        long_one.first()
        quick.first()
    finally:
        for s in streams:
            s.stop()
    end = long_one.times[0]
    gaps = [b - a for s in streams for a, b in zip(s.times, s.times[1:])
            if a >= long_one.begin and b <= end]
    calm = [b - a for s in streams for a, b in zip(s.times[10:], s.times[11:])
            if b <= long_one.begin]
    steps = sum(quick.begin < t <= quick.times[0] for t in streams[0].times)
    return gaps, calm, steps, long_one.times[0] - long_one.begin


def second_turn(o, port):
    """The share of a second turn's prompt that was cached, its time to the first token (s), and the
    time without the cache."""
    words = " ".join(str(o.random.randrange(10**6)) for _ in range(o.turn // 8))
    messages = [{"role": "user", "content": "Which of these numbers are even? " + words}]
    salt = str(o.random.random())
    body = {"max_tokens": 32, "cache_salt": salt}
    first = Stream(port, "/v1/chat/completions", {**body, "messages": messages})
    first.join()
    messages += [{"role": "assistant", "content": first.text},
                 {"role": "user", "content": "Are you sure?"}]
    warm = Stream(port, "/v1/chat/completions", {**body, "messages": messages})
    warm.join()
    cold = Stream(port, "/v1/chat/completions",
                  {**body, "messages": messages, "cache_salt": salt + "x"})
    cold.join()
    usage = warm.usage
    return (usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"], warm.first(),
            cold.first())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("-m", "--model", default=served.demo_model())
    parser.add_argument("--braid", default=served.BRAID)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=4096, help="tokens of the long prompt")
    parser.add_argument("--turn", type=int, default=3000, help="tokens of a first turn, about")
    parser.add_argument("--max-step-ms", type=float, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    o.random = random.Random(o.seed)
    port = served.free_port()
    alone, among, turns = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        command = [o.braid, "serve", "-m", o.model, "--port", port, "--log", "none",
                   "--max-step-ms", o.max_step_ms, "--kv-memory", "1G"]
        with served.serve(command, port, f"{folder}/log"):
            ask(o, port, o.prompt).first()  # the cost of a step is learnt
            for _ in range(o.rounds):
                alone.append(ask(o, port, o.prompt).first())
                among.append(among_streams(o, port))
                turns.append(second_turn(o, port))

    def middle(values):
        return statistics.median(values)
    gaps = [1e3 * p99(a[0]) for a in among]
    calm = [1e3 * p99(a[1]) for a in among]
    steps = [a[2] for a in among]
    ratio = middle(a[3] / b for a, b in zip(among, alone))
    print(f"{o.rounds} rounds, --max-step-ms {o.max_step_ms:.0f}, medians (all rounds):")
    print(f"gap between tokens of {o.streams} streams, P99: {middle(gaps):.1f} ms while a prompt of "
          f"{o.prompt} tokens is computed ({', '.join(f'{g:.0f}' for g in gaps)}), "
          f"{middle(calm):.1f} ms before")
    print(f"a short prompt behind it had its token after {middle(steps):.0f} steps of the streams "
          f"({', '.join(map(str, steps))}), its own among them")
    print(f"the long prompt: {1e3 * middle(alone):.0f} ms alone, "
          f"{1e3 * middle(a[3] for a in among):.0f} ms among them ({ratio:.2f}x)")
    cached = min(t[0] for t in turns)
    turn = middle(t[1] / t[2] for t in turns)
    print(f"second turn: {100 * cached:.1f}% of the prompt found at least, first token after "
          f"{1e3 * middle(t[1] for t in turns):.0f} ms, {1e3 * middle(t[2] for t in turns):.0f} ms "
          f"without ({turn:.3f}x)")
    # The step under way when the short prompt comes, and the step that computes it, are no waits.
    good = (middle(gaps) <= 1.25 * o.max_step_ms and middle(steps) <= 4 and ratio <= 1.5
            and cached >= 0.95 and turn <= 0.15)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
