"""Steps planned and simulated for devices that need not be there."""

from __future__ import annotations

import json
import os
from typing import Any

from . import _braid
from ._error import Error
from .strategy import OpScheduler, resolve


class Plan:
    """A planned step. Draws itself in a notebook: lanes for computation and communication."""

    def __init__(self, plans: _braid.StepPlans) -> None:
        self._plans = plans
        #: What `braid plan --json` prints: strategy, launches, hash, simulated_ms, ...
        self.data: dict[str, Any] = json.loads(plans.json())

    @property
    def hash(self) -> str:
        """Equal for schedules that say the same: launches, streams, waits, offsets."""
        return str(self.data["hash"])

    @property
    def launches(self) -> list[dict[str, Any]]:
        """The launches of rank 0 in recorded order: kind, scope, ops, micro_batches, stream,
        waits (indices), begin_ms and end_ms as simulated."""
        return self._plans.launches()

    def svg(self) -> str:
        """The simulated timeline of all ranks as an SVG picture."""
        return self._plans.svg()

    def _repr_svg_(self) -> str:
        return self.svg()

    def __str__(self) -> str:
        """A line per launch, as `braid plan --launches` prints."""
        return self._plans.listing()

    def __repr__(self) -> str:
        d = self.data
        return (f"<Plan {d['strategy']}: {d['launches']} launches, {d['micro_batches']} "
                f"micro-batches, {d['simulated_ms']:.3f} ms on {d['profile']}>")


def plan(config: str | os.PathLike[str] = "", *, model: str | os.PathLike[str] = "", tp: int = 1,
         sp: str = "", tokens: int = 512, decodes: int = 0, depth: int = 0,
         schedule: str | OpScheduler | type[OpScheduler] = "sequential", profile: str = "h200",
         machines: str = "", compare: bool = False) -> Plan:
    """Plans a step without running it.

    `config` is a config.json in Hugging Face's form (bf16 weights), or `model` a model's path.
    The step has a prompt of `tokens` and `decodes` sequences of one token; each has `depth` tokens
    in the KV cache. `tp` ranks divide the weights or, where `sp` names a mode ('ring', 'ulysses',
    'usp', 'tas', 'torus'), the prompt's tokens; `machines` ('2x4') says on how many machines they
    are. `schedule` is a strategy's name, 'auto', a shared library, or a strategy of Python.
    With `compare` the strategies that come with Braid are planned, too (`data['strategies']`).

    Raises `braid.Error`; what a strategy of Python raises is in the message, with its traceback.
    """
    name, own = resolve(schedule)
    for what, path in (("model", model), ("config", config)):
        if not isinstance(path, (str, os.PathLike)):
            raise Error(f"{what} is {path!r}, wanted a path")
    for what, value in (("tp", tp), ("tokens", tokens), ("decodes", decodes), ("depth", depth)):
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise Error(f"{what} is {value!r}, wanted a whole number")
    for what, text in (("profile", profile), ("sp", sp), ("machines", machines)):
        if not isinstance(text, str):
            raise Error(f"{what} is {text!r}, wanted a text")
    return Plan(_braid.StepPlans(model=os.fspath(model), config=os.fspath(config), schedule=name,
                                 own=own, profile=profile, tokens=tokens, decodes=decodes,
                                 depth=depth, tp=tp, sp=sp, machines=machines, compare=compare))
