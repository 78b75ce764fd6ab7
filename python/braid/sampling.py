"""How an answer is sampled, and where it ends."""

from __future__ import annotations

import dataclasses
import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ._error import Error


def whole_number(name: str, value: Any, least: int = 0, end: int = 2**31) -> int:
    """The value as an int. Raises `braid.Error` unless it is a whole number from `least` on, below
    `end`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise Error(f"{name} is {value!r}, wanted a whole number")
    number = operator.index(value)
    if not least <= number < end:
        last = f"2**{end.bit_length() - 1} - 1"
        raise Error(f"{name} is {number}, wanted {least} to {last}")
    return number


def number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise Error(f"{name} is {value!r}, wanted a number")
    return float(value)


def _items(name: str, value: Any, kind: Any, wanted: str) -> list[Any]:
    if isinstance(value, (str, bytes)) or not isinstance(value, kind):
        raise Error(f"{name} is {value!r}, wanted {wanted}")
    return list(value)


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
    exact: bool = False  #: all keys count, also where the LLM's `keep` makes prompts approximate
    logprobs: int | None = None  #: alternatives to report with each token
    prompt_logprobs: int | None = None  #: the same of the prompt's tokens
    logit_bias: Mapping[int, float] | None = None  #: added to the logits of these ids
    #: One of these binds the answer, behind reasoning: a JSON schema (a dict, JSON text, or a class
    #: of pydantic), a regular expression, texts to choose from, or EBNF whose rule `root` it is.
    schema: Any = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None

    def __post_init__(self) -> None:
        self.request()

    def stop_texts(self) -> list[str]:
        """`stop` as a list."""
        texts = [self.stop] if isinstance(self.stop, str) else _items("stop", self.stop, Iterable,
                                                                      "a text, or several")
        for text in texts:
            if not isinstance(text, str):
                raise Error(f"stop has {text!r}, wanted texts")
        return texts

    def answer_format(self) -> tuple[str, str] | None:
        """What binds the answer: the field's name, and the value as a text."""
        named = [name for name in ("schema", "regex", "choice", "grammar")
                 if getattr(self, name) is not None]
        if not named:
            return None
        name, value = named[0], getattr(self, named[0])
        if len(named) > 1:
            raise Error(f"{named[1]} beside {name}, wanted one of them")
        for other in ("ignore_eos", "min_tokens"):
            if getattr(self, other):
                raise Error(f"{other} beside {name}, whose answers end by themselves")
        if name in ("regex", "grammar"):
            if not isinstance(value, str):
                raise Error(f"{name} is {value!r}, wanted a text")
            return name, value
        if name == "choice":
            value = _items(name, value, Iterable, "texts")
            for text in value:
                if not isinstance(text, str):
                    raise Error(f"choice has {text!r}, wanted texts")
        elif isinstance(value, str):
            return name, value
        elif hasattr(value, "model_json_schema"):
            value = value.model_json_schema()
        try:
            return name, json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise Error(f"{name} is no JSON: {error}") from None

    def request(self, choice: int = 0) -> dict[str, Any]:
        """The arguments of `_braid.Engine.submit` for one of the `n` answers."""
        whole_number("n", self.n, least=1)
        request: dict[str, Any] = {}
        for name in ("temperature", "top_p", "min_p", "repetition_penalty"):
            value = getattr(self, name)
            request[name] = None if value is None else number(name, value)
        for name in ("frequency_penalty", "presence_penalty"):
            request[name] = number(name, getattr(self, name))
        for name in ("top_k", "max_tokens"):
            value = getattr(self, name)
            request[name] = None if value is None else whole_number(name, value)
        request["min_tokens"] = whole_number("min_tokens", self.min_tokens)
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            request[name] = -1 if value is None else whole_number(name, value)
        request["seed"] = None
        if self.seed is not None:  # choice i is as far from choice 0 as in the server
            seed = whole_number("seed", self.seed, end=2**64)
            request["seed"] = (seed + choice * 0x9E3779B97F4A7C55) % 2**64
        bias = {} if self.logit_bias is None else self.logit_bias
        ids = _items("logit_bias", bias, Mapping, "a number for each id")
        request["logit_bias"] = [(whole_number("an id of logit_bias", i),
                                  number("a value of logit_bias", bias[i])) for i in ids]
        request["stop"] = self.stop_texts()
        ids = _items("stop_token_ids", self.stop_token_ids, Iterable, "ids")
        request["stop_ids"] = [whole_number("an id of stop_token_ids", i) for i in ids]
        for name, ours in (("include_stop_str_in_output", "include_stop"),
                           ("ignore_eos", "ignore_eos"), ("skip_special_tokens", "skip_special"),
                           ("exact", "exact")):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise Error(f"{name} is {value!r}, wanted True or False")
            request[ours] = value
        request["format"] = self.answer_format()
        return request
