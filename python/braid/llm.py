"""Models that generate."""

from __future__ import annotations

import asyncio
import atexit
import dataclasses
import operator
import os
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Union

from . import _braid
from ._error import Error
from .sampling import SamplingParams, number, whole_number
from .strategy import OpScheduler, resolve

if TYPE_CHECKING:
    import numpy
    import numpy.typing

Prompt = Union[str, Sequence[int]]
Messages = Sequence[Mapping[str, str]]


class DeviceArray(Protocol):
    """An array that other libraries take over by `from_dlpack`, wherever its memory is."""

    def __dlpack__(self, **options: Any) -> Any:
        """The array as a capsule of DLPack."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's kind of device (1: CPU, 2: CUDA) and its number."""


@dataclasses.dataclass(frozen=True)
class Token:
    """A token of an answer or a prompt."""

    id: int
    logprob: float | None = None  #: natural logarithm, of the model's own distribution
    top: tuple[tuple[int, float], ...] = ()  #: the most likely ids with their log-probabilities


@dataclasses.dataclass(frozen=True)
class Chunk:
    """A piece of an answer as it is made: whole characters, never a part of a stop text."""

    text: str
    tokens: tuple[Token, ...]


@dataclasses.dataclass(frozen=True)
class Choice:
    """One answer to a prompt."""

    text: str
    tokens: tuple[Token, ...]
    finish_reason: str  #: 'stop', 'length' or 'abort'
    stop: str | None  #: the stop text that ended the answer
    usage: dict[str, Any]  #: prompt_tokens, cached_tokens, completion_tokens, seconds, ttft

    @property
    def token_ids(self) -> list[int]:
        """The ids of `tokens`."""
        return [token.id for token in self.tokens]


@dataclasses.dataclass(frozen=True)
class Output:
    """The answers to one prompt."""

    prompt_token_ids: list[int]
    outputs: list[Choice]  #: SamplingParams.n of them
    prompt_logprobs: tuple[Token, ...]  #: of the prompt's tokens from the second on, where asked

    @property
    def text(self) -> str:
        """The first answer's text."""
        return self.outputs[0].text


def _path(model: Any) -> str:
    if not isinstance(model, (str, os.PathLike)):
        raise Error(f"the model is {model!r}, wanted a path or a name")
    return str(os.fspath(model))


def _tokens(raw: list[dict[str, Any]], logprobs: bool) -> tuple[Token, ...]:
    if not logprobs:
        return tuple(Token(t["id"]) for t in raw)
    return tuple(Token(t["id"], t["logprob"], tuple(t["top"])) for t in raw)


def _ids(prompt: Any, where: str) -> list[int]:
    ids = []
    for i in prompt:
        if isinstance(i, bool) or not hasattr(i, "__index__"):
            raise Error(f"{where} has {i!r}, wanted token ids")
        ids.append(operator.index(i))
        if not -2**31 <= ids[-1] < 2**31:
            raise Error(f"{where} has {i!r}, wanted token ids")
    return ids


class Tokenizer:
    """The model's own tokenizer."""

    def __init__(self, engine: _braid.Engine) -> None:
        self._engine = engine

    def encode(self, text: str, *, add_special: bool = True,
               parse_special: bool = False) -> list[int]:
        """Ids of a text. `add_special` puts BOS and the like around it; `parse_special` takes the
        text of special tokens for those tokens. Raises `braid.Error` once the LLM is closed."""
        if not isinstance(text, str):
            raise Error(f"encode has {text!r}, wanted a text")
        return self._engine.encode(text, add_special, parse_special)

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of ids: bytes that form no character become U+FFFD. Raises `braid.Error` on an
        id outside the vocabulary."""
        return self._engine.decode(_ids(ids, "decode"), skip_special)

    def piece(self, token_id: int) -> str:
        """A token as the vocabulary spells it. Raises `braid.Error` on an id outside."""
        return self._engine.piece(_ids([token_id], "piece")[0])

    def __len__(self) -> int:
        return self._engine.vocab_size()


class Stream:
    """An answer piece by piece: iterate over it. Leaving the loop, or `close()`, cancels it."""

    def __init__(self, stream: _braid.Stream, logprobs: bool) -> None:
        self._stream: _braid.Stream | None = stream
        self._logprobs = logprobs
        #: Of the whole answer, once the stream has ended: finish_reason, stop, token counts.
        self.end: dict[str, Any] | None = None

    def __iter__(self) -> Iterator[Chunk]:
        try:
            while (chunk := self._next()) is not None:
                yield chunk
        finally:
            self.close()

    def _next(self) -> Chunk | None:
        if self._stream is None:
            return None
        piece = self._stream.next()
        if piece is None:
            self.end = self._stream.end()
            self._stream = None
            return None
        text, tokens = piece
        return Chunk(text, _tokens(tokens, self._logprobs))

    def close(self) -> None:
        """Cancels an answer that has not ended."""
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None


_open: weakref.WeakSet[LLM] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for llm in list(_open):
        llm.close()


class LLM:
    """A model on its devices. Answers many prompts at once, from any thread.

    `model` is a path or a name as `braid run` takes it. `device` is 'auto', 'cpu', 'cuda' or
    'cuda:0,1'; `tp` ranks divide the weights, or `ranks` (None: all GPUs) divide the tokens of each
    prompt as `sp` says: 'ring', 'ulysses', 'usp', 'tas', 'torus' or 'auto'. `machines` ('2x4') says
    on how many machines the ranks are; `threads` of each rank (0: the cores divided by the ranks).
    `schedule` is a strategy's name, 'auto', a shared library, a strategy of Python, or None: what
    fits `sp` and the device. `kv_dtype` is 'auto', 'f16', 'bf16' or 'f32'. `max_model_len` bounds a
    sequence in tokens (0: what fits), `max_num_seqs` sequences that are computed at once,
    `max_step_tokens` tokens of a step (0: 512, with `sp` or `keep` as many as fit), `max_waiting` requests
    that wait, `kv_memory` the KV cache ('auto', '512M'). `keep` (0.5, or a list), `levels` and
    `importance` are --keep of `braid serve` (docs/server.md): usage has 'approximate', shares of pairs and keys.

    Close it, or use it in a `with` block: its threads and memory end there, at the latest when the
    object goes. Raises `braid.Error` where the model or a device cannot be had.
    """

    def __init__(self, model: str | os.PathLike[str], *, device: str = "auto", tp: int = 1,
                 sp: str = "", ranks: int | None = None, machines: str = "", threads: int = 0,
                 schedule: str | OpScheduler | type[OpScheduler] | None = None,
                 kv_dtype: str = "auto", max_model_len: int = 0, max_num_seqs: int = 32,
                 max_step_tokens: int = 0, max_waiting: int = 1024, prefix_cache: bool = True,
                 kv_memory: str = "auto", keep: float | Sequence[float] = (),
                 levels: Sequence[int] = (), importance: str = "own") -> None:
        name, own = (None, None) if schedule is None else resolve(schedule)
        for what, value in (("tp", tp), ("ranks", ranks), ("threads", threads),
                            ("max_model_len", max_model_len), ("max_num_seqs", max_num_seqs),
                            ("max_step_tokens", max_step_tokens), ("max_waiting", max_waiting)):
            if value is not None or what != "ranks":
                whole_number(what, value)
        for what, text in {"device": device, "sp": sp, "machines": machines, "kv_dtype": kv_dtype,
                           "kv_memory": kv_memory, "importance": importance}.items():
            if not isinstance(text, str):
                raise Error(f"{what} is {text!r}, wanted a text")
        self._engine = _braid.Engine.open(
            model=_path(model), device=device, tp=tp, sp=sp, ranks=ranks, machines=machines,
            threads=threads, schedule=name, own=own, kv_dtype=kv_dtype, max_context=max_model_len,
            max_running=max_num_seqs, max_step_tokens=max_step_tokens, max_waiting=max_waiting,
            prefix_cache=prefix_cache, kv_memory=kv_memory, importance=importance,
            keep=[number("keep", k) for k in (keep if isinstance(keep, Sequence) else [keep])],
            levels=[whole_number("levels", n) for n in levels], grammar_helper=os.path.join(
                os.path.dirname(os.path.abspath(__file__)), "grammar_helper"))
        self._window = max(1, max_waiting // 2)
        self.tokenizer = Tokenizer(self._engine)
        _open.add(self)

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends all requests and gives back memory and threads. Later calls raise `braid.Error`."""
        self._engine.close()

    @property
    def max_model_len(self) -> int:
        """Tokens of one sequence."""
        return self._engine.max_context()

    def stats(self) -> dict[str, Any]:
        """Counts so far: running, waiting, steps, tokens, and seconds of steps, sampling, host."""
        return self._engine.stats()

    def generate(self, prompts: Prompt | Sequence[Prompt],
                 params: SamplingParams | None = None) -> list[Output]:
        """Answers to all prompts, texts or lists of ids, in their order. Raises `braid.Error` on a
        wrong prompt, or the first error of an answer, and cancels the other answers."""
        return self._run([self._encode(p, f"prompt {i}") for i, p in enumerate(_list(prompts))],
                         params, chat=False)

    def chat(self, messages: Messages | Sequence[Messages],
             params: SamplingParams | None = None) -> list[Output]:
        """The assistant's answers to one conversation, or to each of several. A message is
        {'role': 'user', 'content': 'text'}. Raises `braid.Error` as `generate`, and where
        the model has no chat template ('unsupported')."""
        many: Any = messages
        if isinstance(many, (str, bytes, Mapping)) or not isinstance(many, Sequence):
            raise Error(f"messages are {many!r}, wanted a list of messages, or several lists")
        if len(many) > 0 and isinstance(many[0], Mapping):
            many = [many]
        return self._run([self._render(m) for m in many], params, chat=True)

    def stream(self, prompt: Prompt | Messages, params: SamplingParams | None = None) -> Stream:
        """One answer, piece by piece: to a text, to ids, or to the messages of a conversation.
        Raises `braid.Error` on a wrong prompt at once, on an answer's error while iterating."""
        ids, chat = self._any(prompt)
        params = params or SamplingParams()
        return Stream(self._submit(ids, params, chat), params.logprobs is not None)

    async def astream(self, prompt: Prompt | Messages,
                      params: SamplingParams | None = None) -> AsyncIterator[Chunk]:
        """As `stream`, for asyncio: other tasks run while the answer is made. Leaving the loop
        cancels the answer once the generator is closed. Errors as of `stream`, while iterating."""
        ids, chat = self._any(prompt)
        params = params or SamplingParams()
        loop, come = asyncio.get_running_loop(), asyncio.Event()

        def ready() -> None:
            try:
                loop.call_soon_threadsafe(come.set)
            except RuntimeError:  # the loop has ended before the answer
                pass

        if params.answer_format():  # which may have to be compiled
            inner = await asyncio.to_thread(self._submit, ids, params, chat, ready=ready)
        else:
            inner = self._submit(ids, params, chat, ready=ready)
        stream = Stream(inner, params.logprobs is not None)
        try:
            while True:
                await come.wait()
                come.clear()
                while inner.ready():
                    chunk = stream._next()
                    if chunk is None:
                        return
                    yield chunk
        finally:
            stream.close()

    async def agenerate(self, prompt: Prompt | Messages,
                        params: SamplingParams | None = None) -> str:
        """The text of one answer, for asyncio. Errors as of `stream`."""
        return "".join([chunk.text async for chunk in self.astream(prompt, params)])

    def score(self, prompt: Prompt) -> list[float]:
        """Log-probability (natural logarithm) of each token from the second on, given the tokens
        before it: [tokens - 1]. Raises `braid.Error` on fewer than two tokens."""
        return self._engine.score(self._encode(prompt, "the prompt"))

    def logits(self, prompt: Prompt) -> numpy.typing.NDArray[numpy.float32]:
        """The logits after each token: f32 [tokens, vocabulary], an array of its own. Raises
        `braid.Error` on an empty prompt, or a prompt that does not fit."""
        import numpy as _  # before the work, so that Ctrl-C finds it done

        return self._engine.logits(self._encode(prompt, "the prompt"))

    def device_logits(self, prompt: Prompt) -> DeviceArray:
        """The same where the model is, f32 [tokens, vocabulary], to take through DLPack without
        a copy: `torch.from_dlpack(llm.device_logits(p))` is a CUDA tensor of a GPU's model. The
        memory goes with the last array that uses it, not with the LLM. Raises `braid.Error` as
        `logits`, and 'resource_exhausted' if the device has no room."""
        array: DeviceArray = self._engine.device_logits(self._encode(prompt, "the prompt"))
        return array

    def _any(self, prompt: Prompt | Messages) -> tuple[list[int], bool]:
        items: Any = prompt
        if not isinstance(items, str) and len(items) > 0 and isinstance(items[0], Mapping):
            return self._render(items), True
        return self._encode(items, "the prompt"), False

    def _encode(self, prompt: Any, where: str) -> list[int]:
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt)
        if isinstance(prompt, (bytes, Mapping)) or not hasattr(prompt, "__iter__"):
            raise Error(f"{where} is {prompt!r}, wanted a text or token ids")
        return _ids(prompt, where)

    def _render(self, messages: Messages) -> list[int]:
        pairs = []
        if isinstance(messages, (str, bytes)) or not isinstance(messages, Sequence):
            raise Error(f"messages are {messages!r}, wanted a list of messages")
        for message in messages:
            if not isinstance(message, Mapping):
                raise Error(f"a message is {message!r}, wanted a role and a content")
            role, content = message.get("role"), message.get("content")
            if not isinstance(role, str) or not isinstance(content, str):
                raise Error(f"a message is {message!r}, wanted a role and a content that are texts")
            pairs.append((role, content))
        return self._engine.chat_ids(pairs)

    def _submit(self, ids: list[int], params: SamplingParams, chat: bool, choice: int = 0,
                ready: Any = None) -> _braid.Stream:
        return self._engine.submit(prompt=ids, chat=chat, ready=ready, **params.request(choice))

    def _run(self, prompts: list[list[int]], params: SamplingParams | None,
             chat: bool) -> list[Output]:
        params = params or SamplingParams()
        jobs = [(ids, choice) for ids in prompts for choice in range(params.n)]
        open_: list[_braid.Stream] = []
        ended: list[Any] = []
        try:
            for ids, choice in jobs:
                if len(open_) - len(ended) >= self._window:
                    ended.append(open_[len(ended)].rest())
                while True:
                    try:
                        open_.append(self._submit(ids, params, chat, choice))
                        break
                    except Error as error:  # other threads fill the queue
                        if error.code != "resource_exhausted" or len(open_) == len(ended):
                            raise
                        ended.append(open_[len(ended)].rest())
            while len(ended) < len(open_):
                ended.append(open_[len(ended)].rest())
        finally:
            for stream in open_[len(ended):]:
                stream.cancel()
        outputs = []
        for i, ids in enumerate(prompts):
            answers = ended[i * params.n:(i + 1) * params.n]
            choices = []
            for text, tokens, _, end in answers:
                usage = {k: v for k, v in end.items() if k not in ("finish_reason", "stop")}
                choices.append(Choice(text, _tokens(tokens, params.logprobs is not None),
                                      end["finish_reason"], end["stop"], usage))
            outputs.append(Output(ids, choices, _tokens(answers[0][2], True)))
        return outputs


def _list(prompts: Any) -> list[Any]:
    if isinstance(prompts, str):
        return [prompts]
    if isinstance(prompts, (bytes, Mapping)) or not hasattr(prompts, "__iter__"):
        raise Error(f"prompts are {prompts!r}, wanted a text, token ids, or a list of these")
    items = list(prompts)
    if items and all(hasattr(item, "__index__") for item in items):
        return [items]
    return items
