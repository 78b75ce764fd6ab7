"""Conversations, and which of them each template file of tests/golden/templates renders."""

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather of a place.",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "City, \"FR\" & <b>"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": ["integer", "null"], "default": 1},
            },
            "required": ["location"],
        },
        "return": {"type": "number", "description": "Degrees <C>"},
    },
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Find text.\nSecond line.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "Größe, 日本"},
                "filters": {"type": "array", "items": {"type": "object", "properties": {"min": {"type": "number"}}}},
            },
            "required": ["query", "filters"],
        },
    },
}
TOOLS = [WEATHER, SEARCH]


def call(name, arguments, identity):
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM = {"role": "system", "content": "You are a pirate.\n  Be brief. "}
USER = {"role": "user", "content": "  What's 2 + 2?\n"}
ANSWER = {"role": "assistant", "content": " It's \"4\", <arr> & ünïcode 🙂. "}
AGAIN = {"role": "user", "content": "And <|im_end|> 3 + 3? {{ no }} {% code %}"}
REASONED = {"role": "assistant", "content": "<think>\nFour, I think.\n</think>\n\nIt is 4."}
REASONED_FIELD = {"role": "assistant", "content": "It is 4.", "reasoning_content": "\nClearly four.\n"}
ASK = {"role": "user", "content": "How is the weather in Paris?"}
CALLS = {"role": "assistant", "content": None, "tool_calls": [call("get_weather", {"location": "Paris, \"FR\"", "days": 2, "unit": None}, "call12345")]}
CALLS_EMPTY = {"role": "assistant", "content": "", "tool_calls": CALLS["tool_calls"]}
CALLS_TEXT = {
    "role": "assistant",
    "content": "Let me look.",
    "tool_calls": [call("get_weather", {"location": "Paris"}, "call00001"), call("search", {"query": "日本", "filters": []}, "call00002")],
}
RESULT = {"role": "tool", "name": "get_weather", "tool_call_id": "call12345", "content": "{\"temp\": 21.5}"}
RESULT_A = {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "22"}
RESULT_B = {"role": "tool", "name": "search", "tool_call_id": "call00002", "content": "nothing\nfound"}
FINAL = {"role": "assistant", "content": "It is 21.5 degrees."}
PARTS = {"role": "user", "content": [{"type": "text", "text": "Look:"}, {"type": "text", "text": " here."}]}

PLAIN = {
    "user": [USER],
    "system": [SYSTEM, USER],
    "turns": [USER, ANSWER, AGAIN],
    "system turns": [SYSTEM, USER, ANSWER, AGAIN, ANSWER],
    "answered": [USER, ANSWER],
    "two users": [USER, AGAIN],
    "assistant first": [ANSWER, USER],
    "late system": [USER, SYSTEM, AGAIN],
    "unknown role": [{"role": "narrator", "content": "Once."}, USER],
    "empty": [{"role": "user", "content": ""}],
    "no messages": [],
}
REASONING = {
    "reasoned": [USER, REASONED],
    "reasoned turns": [SYSTEM, USER, REASONED, AGAIN, REASONED_FIELD],
    "reasoned then asked": [USER, REASONED, AGAIN],
    "reasoning field": [USER, REASONED_FIELD, AGAIN],
}
CALLING = {
    "call": [ASK, CALLS],
    "call result": [SYSTEM, ASK, CALLS, RESULT],
    "call empty content": [CALLS_EMPTY],
        "two calls, then asked": [SYSTEM, ASK, CALLS_TEXT, RESULT_A, RESULT_B, FINAL, AGAIN],
    "result before call": [RESULT, ASK],
}
CONTENT_PARTS = {"parts": [PARTS], "parts turns": [SYSTEM, PARTS, ANSWER, PARTS]}

WITH_TOOLS = {**CALLING, "user": PLAIN["user"], "no messages": PLAIN["no messages"]}
DATED = {name: CALLING[name] for name in ("call result", "result before call")}
LONG = {"two calls, then asked": CALLING["two calls, then asked"]}
CONVERSATIONS = {**PLAIN, **REASONING, **CALLING, **CONTENT_PARTS}

# Which groups each file renders without tools and with them.
FILES = {
    "chatml.jinja": ([PLAIN], []),
    "chatml_default_system.jinja": ([PLAIN], []),
    "deepseek_r1.jinja": ([PLAIN, REASONING, CALLING], []),
    "deepseek_v2.jinja": ([PLAIN], []),
    "gemma.jinja": ([PLAIN], []),
    "gemma3.jinja": ([PLAIN, CONTENT_PARTS], []),
    "hermes_tool_use.jinja": ([DATED], [DATED, LONG]),
    "llama2.jinja": ([PLAIN], []),
    "llama3.jinja": ([PLAIN], []),
    "llama3_1.jinja": ([PLAIN], [DATED, LONG]),
    "llama3_2.jinja": ([DATED], [DATED]),
    "mistral_v1.jinja": ([PLAIN], []),
    "mistral_v3.jinja": ([PLAIN], [WITH_TOOLS]),
    "mistral_nemo.jinja": ([PLAIN], [LONG]),
    "olmo_generation.jinja": ([PLAIN], []),
    "phi3.jinja": ([PLAIN], []),
    "qwen2.jinja": ([PLAIN], []),
    "qwen2_5.jinja": ([PLAIN], [DATED, LONG]),
    "qwen3.jinja": ([PLAIN, REASONING], [WITH_TOOLS]),
    "smollm2.jinja": ([PLAIN], []),
    "zephyr.jinja": ([PLAIN], []),
}
# Variables that some templates read, in one case each.
EXTRAS = [
    ("qwen3.jinja", "user", {"enable_thinking": False}),
    ("llama3_1.jinja", "user", {"builtin_tools": ["brave_search", "code_interpreter"]}),
    ("llama3_1.jinja", "system", {"tools_in_user_message": False, "custom_tools": TOOLS}),
    ("llama3_2.jinja", "user", {"custom_tools": [SEARCH], "date_string": "1 May 2025"}),
    ("chatml.jinja", "user", {"bos_token": ""}),
]


def cases():
    """Yields file, name of the conversation, whether the tools are given, and more variables."""
    for file, (plain, calling) in FILES.items():
        for tools, groups in ((False, plain), (True, calling)):
            for group in groups:
                for name in group:
                    yield file, name, tools, {}
    for file, name, more in EXTRAS:
        yield file, name, False, more


def add_generation_prompt(messages):
    return messages[-1:] != [] and messages[-1]["role"] != "assistant"


def variables(messages, tools, more):
    return {
        "messages": messages,
        "tools": TOOLS if tools else None,
        "documents": None,
        "add_generation_prompt": add_generation_prompt(messages),
        **TOKENS,
        **more,
    }
