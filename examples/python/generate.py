"""generate.py MODEL PROMPT: completes a prompt with 16 tokens, then streams an answer."""

import sys

import braid

with braid.LLM(sys.argv[1]) as llm:
    print(llm.generate(sys.argv[2], braid.SamplingParams(max_tokens=16))[0].text)
    for chunk in llm.stream(sys.argv[2], braid.SamplingParams(max_tokens=16)):
        print(chunk.text, end="", flush=True)
    print()
