"""Braid: runs large language models, and lets you write when their operators run.

    import braid
    with braid.LLM("model.gguf") as llm:
        print(llm.generate("The capital of France is", braid.SamplingParams(max_tokens=16))[0].text)
        for chunk in llm.stream([{"role": "user", "content": "Why is the sky blue?"}]):
            print(chunk.text, end="", flush=True)
"""

from ._braid import version as __version__
from ._error import Error
from .llm import LLM, Choice, Chunk, DeviceArray, Output, Stream, Token, Tokenizer
from .planning import Plan, plan
from .sampling import SamplingParams
from .strategy import (LINK_TAG, RING_TAG, BatchInfo, LayoutRequest, OpScheduler, PartitionRules,
                       ScheduleContext, Task, register, split_tokens, strategies)

__all__ = ["BatchInfo", "Choice", "Chunk", "DeviceArray", "Error", "LINK_TAG", "LLM",
           "LayoutRequest", "OpScheduler", "Output", "PartitionRules", "Plan", "RING_TAG",
           "SamplingParams", "ScheduleContext", "Stream", "Task", "Token", "Tokenizer",
           "__version__", "plan", "register", "split_tokens", "strategies"]
