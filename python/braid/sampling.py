"""How an answer is sampled, and where it ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ._error import Error


def _number(name: str, value: Any, kinds: tuple[type, ...], wanted: str) -> None:
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise Error(f"{name} is {value!r}, wanted {wanted}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How tokens are chosen, and when an answer ends.

    None leaves a choice to the model's own file, else to Braid: greedy, in a chat temperature 0.7.
    Ranges are checked where the request is submitted: a wrong value raises `braid.Error`.
    """

    n: int = 1  #: answers to each prompt; answer i of a seed has a seed of its own
    temperature: float | None = None  #: 0: always the most likely token
    top_k: int | None = None  #: the most likely tokens that take part; 0: all
    top_p: float | None = None  #: smallest set of tokens with this much probability
    min_p: float | None = None  #: tokens at least this likely relative to the most likely one
    repetition_penalty: float | None = None  #: divides positive logits of tokens seen before
    frequency_penalty: float = 0.0  #: subtracted once for each time that a token was made
    presence_penalty: float = 0.0  #: subtracted once if a token was made at all
    seed: int | None = None  #: None: another one each time
    max_tokens: int | None = None  #: of the answer; None: until the context is full
    min_tokens: int = 0  #: before these the answer does not end by itself
    stop: str | Sequence[str] = ()  #: texts that end the answer, and are no part of it
    stop_token_ids: Sequence[int] = ()  #: ids that end the answer
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False  #: go on after an end-of-text token
    skip_special_tokens: bool = True  #: special tokens have no text
    logprobs: int | None = None  #: alternatives to report with each token
    prompt_logprobs: int | None = None  #: the same of the prompt's tokens
    logit_bias: Mapping[int, float] | None = None  #: added to the logits of these ids

    def __post_init__(self) -> None:
        floats = ("temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty",
                  "presence_penalty")
        for name in floats:
            value = getattr(self, name)
            if value is not None:
                _number(name, value, (int, float), "a number")
        for name in ("n", "top_k", "seed", "max_tokens", "min_tokens", "logprobs",
                     "prompt_logprobs"):
            value = getattr(self, name)
            if value is not None:
                _number(name, value, (int,), "a whole number")
        if self.n < 1:
            raise Error(f"n is {self.n}, wanted at least 1")
        if self.seed is not None and not 0 <= self.seed < 2**64:
            raise Error(f"seed is {self.seed}, wanted 0 to 2**64 - 1")
        for name in ("top_k", "max_tokens", "min_tokens", "logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 2**31:
                raise Error(f"{name} is {value}, wanted 0 to 2**31 - 1")
        for text in self.stop_texts():
            if not isinstance(text, str):
                raise Error(f"stop has {text!r}, wanted texts")

    def stop_texts(self) -> list[str]:
        """`stop` as a list."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop)

    def request(self, choice: int = 0) -> dict[str, Any]:
        """The arguments of `_braid.Engine.submit` for one of the `n` answers."""
        seed = self.seed
        if seed is not None:  # choice i is as far from choice 0 as in the server
            seed = (seed + choice * 0x9E3779B97F4A7C55) % 2**64
        return {
            "max_tokens": self.max_tokens,
            "min_tokens": self.min_tokens,
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
            "frequency_penalty": self.frequency_penalty,
            "presence_penalty": self.presence_penalty,
            "seed": seed,
            "logit_bias": list((self.logit_bias or {}).items()),
            "stop": self.stop_texts(),
            "stop_ids": list(self.stop_token_ids),
            "include_stop": self.include_stop_str_in_output,
            "ignore_eos": self.ignore_eos,
            "skip_special": self.skip_special_tokens,
            "logprobs": -1 if self.logprobs is None else self.logprobs,
            "prompt_logprobs": -1 if self.prompt_logprobs is None else self.prompt_logprobs,
        }
