"""The `openai` package, unchanged, against a server: PORT NAME, where the model of NAME tools has
the scripts of tests/server/scripted_server.h. Exits with 77 where the package is absent."""

import asyncio
import json
import sys
import time
import urllib.request

try:
    import openai
    import pydantic
except ImportError as error:
    print(error)
    sys.exit(77)

GRAMMARS = len(sys.argv) > 2 and sys.argv[2] == "grammars"
URL = f"http://127.0.0.1:{sys.argv[1]}/v1"
client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0)
FLAT = [{"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}
        for name in ("add", "sub")]
NESTED = [{"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}}
          for tool in FLAT]


class Pick(pydantic.BaseModel):
    """A schema as people write it."""

    number: int
    word: str = pydantic.Field(pattern="^[a-c]{1,3}$")
    more: list[bool] = pydantic.Field(max_length=2)


class Add(pydantic.BaseModel):
    """Adds."""

    a: bool


def user(text):
    return [{"role": "user", "content": text}]


def running():
    """Requests that the server computes, once that number has settled or a deadline has passed."""
    deadline = time.monotonic() + 30
    while True:
        with urllib.request.urlopen(URL.removesuffix("/v1") + "/metrics", timeout=10) as reply:
            lines = reply.read().decode().splitlines()
        count = sum(float(line.split()[-1]) for line in lines
                    if line.startswith("braid:num_requests_running"))
        if count == 0 or time.monotonic() > deadline:
            return count
        time.sleep(0.05)


# An answer that would take minutes.
ENDLESS = {"model": "tiny", "messages": user("x"), "stream": True, "temperature": 1, "seed": 1,
           "extra_body": {"ignore_eos": True}}


def test_models():
    assert [model.id for model in client.models.list()] == ["tiny"]


def test_chat():
    answer = client.chat.completions.create(model="tiny", messages=user("@call"), tools=NESTED)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls"
    assert message.content == "Let me see."
    assert message.tool_calls[0].function.arguments == '{"a":1}'
    again = client.chat.completions.create(model="tiny", tools=NESTED, messages=[
        *user("@call"), message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "2"}, *user("x")])
    assert again.choices[0].finish_reason in ("stop", "length", "tool_calls")


def test_chat_stream():
    with client.chat.completions.stream(model="tiny", messages=user("@two"), tools=NESTED,
                                        stream_options={"include_usage": True}) as stream:
        for _ in stream:
            pass
    last = stream.get_final_completion()
    assert [call.function.name for call in last.choices[0].message.tool_calls] == ["add", "sub"]
    assert last.usage.completion_tokens > 0


def test_chat_chunks():
    chunks = list(client.chat.completions.create(
        model="tiny", messages=user("@think"), n=2, stream=True, logprobs=True, top_logprobs=2,
        stream_options={"include_usage": True}))
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 14
    assert all(chunk.usage is None for chunk in chunks[:-1])
    for index in range(2):
        choices = [c for chunk in chunks for c in chunk.choices if c.index == index]
        assert choices[0].delta.role == "assistant"
        assert "".join(c.delta.content or "" for c in choices) == "The answer"
        assert [c.finish_reason for c in choices if c.finish_reason] == ["stop"]
        tokens = [t for c in choices if c.logprobs for t in c.logprobs.content]
        assert len(tokens) == 6 and all(len(t.top_logprobs) == 2 for t in tokens)


def test_logprobs():
    answer = client.chat.completions.create(model="tiny", messages=user("@think"), logprobs=True,
                                            top_logprobs=3)
    tokens = answer.choices[0].logprobs.content
    assert "".join(t.token for t in tokens).endswith("The answer")
    for token in tokens:
        assert token.logprob <= 0 and len(token.top_logprobs) == 3
        assert token.logprob in [top.logprob for top in token.top_logprobs]


def test_completions_stream():
    chunks = list(client.completions.create(model="tiny", prompt=["@end", "@end"], stream=True,
                                            max_tokens=3, logprobs=1))
    for index in range(2):
        choices = [c for chunk in chunks for c in chunk.choices if c.index == index]
        assert "".join(c.text for c in choices).endswith("STOP here")
        assert sum(c.finish_reason is not None for c in choices) == 1


def test_cancel():
    stream = client.chat.completions.create(**ENDLESS)
    next(iter(stream))
    stream.close()
    assert running() == 0


def test_completions():
    answer = client.completions.create(model="tiny", prompt="@end", logprobs=2, max_tokens=3)
    assert answer.choices[0].text.endswith("STOP here")
    assert len(answer.choices[0].logprobs.token_logprobs) == 2


def test_parse():
    answer = client.chat.completions.parse(model="tiny", messages=user("x"), response_format=Pick,
                                           temperature=1, seed=3)
    assert isinstance(answer.choices[0].message.parsed, Pick)
    with client.chat.completions.stream(model="tiny", messages=user("x"), response_format=Pick,
                                        temperature=1, seed=3) as stream:
        stream.until_done()
    assert stream.get_final_completion().choices[0].message.parsed == \
        answer.choices[0].message.parsed
    schema = {"name": "pick", "strict": True, "schema": Pick.model_json_schema()}
    answer = client.chat.completions.create(
        model="tiny", messages=user("x"), seed=5,
        response_format={"type": "json_schema", "json_schema": schema})
    Pick.model_validate_json(answer.choices[0].message.content)
    answer = client.chat.completions.parse(model="tiny", messages=user("x"), seed=3,
                                           tools=[openai.pydantic_function_tool(Add)],
                                           tool_choice="required", parallel_tool_calls=False)
    assert isinstance(answer.choices[0].message.tool_calls[0].function.parsed_arguments, Add)


def test_responses():
    response = client.responses.create(model="tiny", input="@call", instructions="", tools=FLAT)
    assert response.status == "completed"
    assert response.output_text == "Let me see."
    call = response.output[-1]
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "add", {"a": 1})
    # The whole output goes back as it is.
    again = client.responses.create(model="tiny", tools=FLAT, store=False, input=[
        *user("@call"), *response.output,
        {"type": "function_call_output", "call_id": call.call_id, "output": "2"}, *user("x")])
    assert again.usage.input_tokens > response.usage.input_tokens
    thought = client.responses.create(model="tiny", input=user("@think"), top_logprobs=2,
                                      include=["message.output_text.logprobs"])
    assert thought.output[0].content[0].text == "long thought"
    assert thought.output_text == "The answer"
    assert len(thought.output[1].content[0].logprobs[0].top_logprobs) == 2
    client.responses.create(model="tiny", tools=FLAT, input=[
        *user("@think"), *thought.output, *user("x")])
    cut = client.responses.create(model="tiny", input="@think", max_output_tokens=2)
    assert cut.incomplete_details.reason == "max_output_tokens"


def test_responses_stream():
    types = []
    for event in client.responses.create(model="tiny", input="@call", tools=FLAT, stream=True):
        type(event).model_validate(event.model_dump(by_alias=True))  # nothing is missing
        types.append(event.type)
    assert types[0] == "response.created" and types[-1] == "response.completed"
    with client.responses.stream(model="tiny", input="@two", tools=FLAT) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert [item.name for item in final.output] == ["add", "sub"]
    failed = [event for event in client.responses.create(model="tiny", input="@fault", stream=True)
              if event.type == "response.failed"]
    assert failed[0].response.error.code == "server_error"


def test_responses_parse():
    response = client.responses.parse(model="tiny", input="x", text_format=Pick, temperature=1,
                                       extra_body={"seed": 3})
    assert isinstance(response.output_parsed, Pick)
    with client.responses.stream(model="tiny", input="x", text_format=Pick, temperature=1,
                                 extra_body={"seed": 3}) as stream:
        final = stream.until_done().get_final_response()
    assert isinstance(final.output_parsed, Pick)


def test_errors():
    def refused(kind, call, param=None):
        try:
            call()
        except kind as error:
            assert error.param == param, error
            return
        raise AssertionError(f"no {kind.__name__}")
    refused(openai.BadRequestError, lambda: client.responses.create(
        model="tiny", input="x", previous_response_id="resp_1"), "previous_response_id")
    refused(openai.BadRequestError, lambda: client.responses.create(model="tiny", input="x", tools=[
        {"type": "web_search"}]), "tools")
    refused(openai.NotFoundError, lambda: client.responses.create(model="big", input="x"), "model")
    refused(openai.NotFoundError, lambda: client.responses.retrieve("resp_1"))
    refused(openai.BadRequestError, lambda: client.chat.completions.create(
        model="tiny", messages=[]), "messages")
    refused(openai.BadRequestError, lambda: client.chat.completions.create(
        model="tiny", messages=user("x"), temperature=3), "temperature")
    refused(openai.NotFoundError, lambda: client.embeddings.create(model="tiny", input="x"))
    try:  # in the middle of a stream
        for _ in client.chat.completions.create(model="tiny", messages=user("@fault"), stream=True):
            pass
    except openai.APIError:
        return
    raise AssertionError("a stream with an error ended without one")


def test_async():
    async def several():
        async with openai.AsyncOpenAI(base_url=URL, api_key="none") as many:
            answers = await asyncio.gather(*(many.responses.create(model="tiny", input="@think")
                                             for _ in range(8)))
            stream = await many.responses.create(model="tiny", input="x", stream=True)
            async for _ in stream:
                break  # a client that goes
            await stream.close()
            chats = await asyncio.gather(*(many.chat.completions.create(
                model="tiny", messages=user("@think")) for _ in range(4)))
            assert {chat.choices[0].message.content for chat in chats} == {"The answer"}
            first = asyncio.Event()

            async def endless():
                async for _ in await many.chat.completions.create(**ENDLESS):
                    first.set()
            task = asyncio.create_task(endless())
            await first.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert [answer.output_text for answer in answers] == ["The answer"] * 8
    asyncio.run(several())
    assert running() == 0


if __name__ == "__main__":
    failed = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_") or (name.endswith("parse") and not GRAMMARS):
            continue
        try:
            test()
        except Exception as error:  # noqa: BLE001: all tests run, whatever one finds
            failed += 1
            print(f"{name}: {type(error).__name__}: {error}")
    print(f"openai {openai.__version__}: {failed} tests failed")
    sys.exit(1 if failed else 0)
