"""Strategies: which op of which micro-batch runs when, on which stream, as which kernel."""

from __future__ import annotations

from typing import Any

from . import _braid
from ._braid import (LINK_TAG, RING_TAG, BatchInfo, LayoutRequest, PartitionRules, ScheduleContext,
                     Task, split_tokens, strategies)
from ._error import Error


class OpScheduler(_braid.OpScheduler):
    """A strategy, written once for every model. Derive from it and write `schedule`.

    Braid calls the methods while it plans a step of a size that is new; replay never does. All
    of them have to be pure: every rank plans by itself and has to come to the same.
    """

    def name(self) -> str:
        """What plans and messages call the strategy: the class's name."""
        return type(self).__name__

    def partition(self, rules: PartitionRules) -> None:
        """Says how the program is cut into tasks; without rules it is one task."""

    def split(self, batch: BatchInfo) -> list[tuple[int, int]]:
        """Micro-batches as ranges of the batch's tokens: adjacent, not empty, covering all."""
        return [(0, batch.tokens)]

    def layout(self, batch: BatchInfo) -> LayoutRequest:
        """What the strategy asks of the lowering."""
        return LayoutRequest()

    def schedule(self, ctx: ScheduleContext) -> None:
        """Executes every task of every micro-batch."""
        raise NotImplementedError(f"{type(self).__name__} has no schedule(ctx)")


_registered: dict[str, type[OpScheduler]] = {}


def register(strategy: type[OpScheduler], name: str | None = None) -> type[OpScheduler]:
    """Makes a strategy known by name, to `LLM(schedule=NAME)` and `plan(schedule=NAME)`.

    Returns the class, so that it serves as a decorator; `name` is the class's name if not given.
    """
    if not (isinstance(strategy, type) and issubclass(strategy, OpScheduler)):
        raise Error(f"register({strategy!r}): wanted a class that derives from braid.OpScheduler")
    _registered[name or strategy.__name__] = strategy
    return strategy


def resolve(schedule: Any) -> tuple[str, OpScheduler | None]:
    """A schedule as a user gives it: (name, None), or ('', a strategy of Python)."""
    if isinstance(schedule, str):
        known = _registered.get(schedule)
        return (schedule, None) if known is None else ("", known())
    if isinstance(schedule, type) and issubclass(schedule, OpScheduler):
        return "", schedule()
    if isinstance(schedule, OpScheduler):
        return "", schedule
    raise Error(f"schedule is {schedule!r}, wanted a strategy's name or a braid.OpScheduler")


__all__ = ["BatchInfo", "LINK_TAG", "LayoutRequest", "OpScheduler", "PartitionRules", "RING_TAG",
           "ScheduleContext", "Task", "register", "resolve", "split_tokens", "strategies"]
