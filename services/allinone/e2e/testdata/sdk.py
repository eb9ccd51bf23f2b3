"""Talks to models through the official clients of OpenAI (both of its APIs), Anthropic and Google, and prints what they said as JSON: an object by client, then by model, then by what was tried.

Arguments: the server's address, and the models. The token is in the environment: TOKEN.
"""

import base64
import json
import os
import sys

import anthropic
import openai
from google import genai
from google.genai import errors, types

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["x", "y"]}


def failure(call, errors):
    """The kind, status and type of what a call fails with."""
    try:
        call()
    except errors.APIStatusError as e:
        body = e.body.get("error", e.body) if isinstance(e.body, dict) else {}
        return [type(e).__name__, e.status_code, body.get("type"), bool(e.request_id)]
    return "no failure"


def with_openai(url, token, model):
    client = openai.OpenAI(base_url=url + "/v1", api_key=token, max_retries=0)

    def ask(messages, **options):
        return client.chat.completions.create(**{"model": model, "messages": messages, **options})

    def user(content):
        return [{"role": "user", "content": content}]

    out = {}
    answer = ask(user("hi"), max_tokens=100)
    out["text"] = [answer.choices[0].message.content, answer.choices[0].finish_reason, answer.usage.total_tokens > 0]

    chunks = list(ask(user("hi"), stream=True, stream_options={"include_usage": True}))
    pieces = [c.choices[0] for c in chunks if c.choices]
    out["stream"] = ["".join(p.delta.content or "" for p in pieces), pieces[-1].finish_reason, chunks[-1].usage.total_tokens > 0]

    tools = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": SCHEMA}}]
    first = ask(user("add"), tools=tools).choices[0]
    call = first.message.tool_calls[0]
    said = {"role": "tool", "tool_call_id": call.id, "content": "tool says 3"}
    last = ask([*user("add"), first.message, said], tools=tools).choices[0]
    out["tools"] = [first.finish_reason, call.function.name, json.loads(call.function.arguments), last.message.content]

    with client.chat.completions.stream(model=model, messages=user("add"), tools=tools) as stream:
        whole = stream.get_final_completion().choices[0]
    out["streamed tools"] = [whole.finish_reason, json.loads(whole.message.tool_calls[0].function.arguments)]

    functions = [{"name": "add", "description": "Adds.", "parameters": SCHEMA}]
    first = ask(user("add"), functions=functions).choices[0]
    said = {"role": "function", "name": "add", "content": "tool says 3"}
    last = ask([*user("add"), first.message, said], functions=functions, function_call="auto").choices[0]
    call = first.message.function_call
    out["functions"] = [first.finish_reason, call.name, json.loads(call.arguments), first.message.tool_calls, last.message.content]

    with client.chat.completions.stream(model=model, messages=user("add"), functions=functions) as stream:
        whole = stream.get_final_completion().choices[0]
    out["streamed functions"] = [whole.finish_reason, whole.message.function_call.name, json.loads(whole.message.function_call.arguments)]

    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PIXEL}}
    out["image"] = ask(user([{"type": "text", "text": "look"}, image])).choices[0].message.content

    stranger = client.with_options(api_key="wrong")
    out["401"] = failure(lambda: stranger.models.list(), openai)
    out["404"] = failure(lambda: ask(user("hi"), model="nobody/x"), openai)
    out["400"] = failure(lambda: ask([{"role": "critic", "content": "x"}]), openai)
    out["429"] = failure(lambda: ask(user("hi"), model=model.split("/")[0] + "/gpt-busy"), openai)
    out["listed"] = "mockllm/model" in [m.id for m in client.models.list()]
    return out


def with_anthropic(url, token, model):
    client = anthropic.Anthropic(base_url=url, api_key=token, max_retries=0)

    def ask(messages, **options):
        return client.messages.create(**{"model": model, "max_tokens": 100, "messages": messages, **options})

    def user(content):
        return {"role": "user", "content": content}

    out = {}
    answer = ask([user("hi")])
    out["text"] = [answer.content[0].text, answer.stop_reason, answer.usage.output_tokens > 0]

    with client.messages.stream(model=model, max_tokens=100, messages=[user("hi")]) as stream:
        text = "".join(stream.text_stream)
        whole = stream.get_final_message()
    out["stream"] = [text, whole.stop_reason, whole.usage.output_tokens > 0]

    tools = [{"name": "add", "description": "Adds.", "input_schema": SCHEMA}]
    first = ask([user("add")], tools=tools)
    call = next(b for b in first.content if b.type == "tool_use")
    said = {"type": "tool_result", "tool_use_id": call.id, "content": "tool says 3"}
    last = ask([user("add"), {"role": "assistant", "content": first.content}, user([said])], tools=tools)
    out["tools"] = [first.stop_reason, call.name, call.input, last.content[0].text]

    with client.messages.stream(model=model, max_tokens=100, messages=[user("add")], tools=tools) as stream:
        whole = stream.get_final_message()
    out["streamed tools"] = [whole.stop_reason, next(b for b in whole.content if b.type == "tool_use").input]

    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    out["image"] = ask([user([{"type": "text", "text": "look"}, image])]).content[0].text
    out["count"] = client.messages.count_tokens(model=model, messages=[user("hi")]).input_tokens > 0

    stranger = client.with_options(api_key="wrong")
    out["401"] = failure(lambda: stranger.models.list(), anthropic)
    out["404"] = failure(lambda: ask([user("hi")], model="nobody/x"), anthropic)
    out["400"] = failure(lambda: ask([{"role": "critic", "content": "x"}]), anthropic)
    out["429"] = failure(lambda: ask([user("hi")], model=model.split("/")[0] + "/gpt-busy"), anthropic)
    out["listed"] = "mockllm/model" in [m.id for m in client.models.list()]
    return out


def with_responses(url, token, model):
    client = openai.OpenAI(base_url=url + "/v1", api_key=token, max_retries=0)

    def ask(messages, **options):
        return client.responses.create(**{"model": model, "input": messages, "store": False, **options})

    out = {}
    answer = ask("hi", max_output_tokens=100)
    out["text"] = [answer.output_text, answer.status, answer.usage.total_tokens > 0]

    out["count"] = client.responses.input_tokens.count(model=model, input="hi").input_tokens > 0

    with client.responses.stream(model=model, input="hi") as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        whole = stream.get_final_response()
    out["stream"] = [text, whole.status, whole.usage.total_tokens > 0]

    tools = [{"type": "function", "name": "add", "description": "Adds.", "parameters": SCHEMA, "strict": False}]
    first = ask("add", tools=tools)
    call = next(i for i in first.output if i.type == "function_call")
    said = {"type": "function_call_output", "call_id": call.call_id, "output": "tool says 3"}
    last = ask([{"role": "user", "content": "add"}, *first.output, said], tools=tools)
    out["tools"] = [call.name, json.loads(call.arguments), last.output_text]

    with client.responses.stream(model=model, input="add", tools=tools) as stream:
        whole = stream.get_final_response()
    out["streamed tools"] = json.loads(next(i for i in whole.output if i.type == "function_call").arguments)

    image = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64," + PIXEL}
    out["image"] = ask([{"role": "user", "content": [{"type": "input_text", "text": "look"}, image]}]).output_text

    kept = client.responses.compact(model=model, input="hi")
    next_turn = ask([*kept.output, {"role": "user", "content": "hi"}])
    out["compacted"] = [kept.object, [i.type for i in kept.output], kept.usage.total_tokens > 0, next_turn.output_text]
    asked = [{"role": "user", "content": "hi"}, {"type": "compaction_trigger"}]
    with client.responses.stream(model=model, input=asked, tools=tools) as stream:
        whole = stream.get_final_response()
    next_turn = ask([*whole.output, {"role": "user", "content": "hi"}])
    out["compacted by an item"] = [[i.type for i in whole.output], whole.status, whole.usage.total_tokens > 0, next_turn.output_text]

    out["404"] = failure(lambda: ask("hi", model="nobody/x"), openai)
    out["400"] = failure(lambda: ask([{"role": "critic", "content": "x"}]), openai)
    out["429"] = failure(lambda: ask("hi", model=model.split("/")[0] + "/gpt-busy"), openai)
    out["stored"] = failure(lambda: ask("hi", previous_response_id="resp_1"), openai)
    return out


def with_google(url, token, model):
    def client(key):
        return genai.Client(api_key=key, http_options=types.HttpOptions(base_url=url))

    google = client(token)

    def ask(contents, model=model, **options):
        return google.models.generate_content(model=model, contents=contents, config=types.GenerateContentConfig(**options))

    def fails(call):
        try:
            call()
        except errors.APIError as e:
            return [e.code, e.status]
        return "no failure"

    out = {}
    answer = ask("hi", max_output_tokens=100)
    out["text"] = [answer.text, answer.candidates[0].finish_reason, answer.usage_metadata.total_token_count > 0]

    chunks = list(google.models.generate_content_stream(model=model, contents="hi"))
    out["stream"] = ["".join(c.text or "" for c in chunks), chunks[-1].candidates[0].finish_reason, chunks[-1].usage_metadata.total_token_count > 0]

    tools = [types.Tool(function_declarations=[types.FunctionDeclaration(name="add", description="Adds.", parameters_json_schema=SCHEMA)])]
    first = ask("add", tools=tools)
    call = first.function_calls[0]
    said = types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response={"result": "tool says 3"}))
    turns = [types.UserContent("add"), first.candidates[0].content, types.Content(role="user", parts=[said])]
    out["tools"] = [call.name, call.args, ask(turns, tools=tools).text]

    image = types.Part.from_bytes(data=base64.b64decode(PIXEL), mime_type="image/png")
    out["image"] = ask(["look", image]).text
    out["count"] = google.models.count_tokens(model=model, contents="hi there").total_tokens > 0

    stranger = client("wrong")
    out["401"] = fails(lambda: stranger.models.generate_content(model=model, contents="hi"))
    out["404"] = fails(lambda: ask("hi", model="nobody/x"))
    out["429"] = fails(lambda: ask("hi", model=model.split("/")[0] + "/gpt-busy"))
    out["listed"] = "models/mockllm/model" in [m.name for m in google.models.list()]
    return out


url, models, token = sys.argv[1], sys.argv[2:], os.environ["TOKEN"]
json.dump({
    "openai": {m: with_openai(url, token, m) for m in models},
    "responses": {m: with_responses(url, token, m) for m in models},
    "anthropic": {m: with_anthropic(url, token, m) for m in models},
    "google": {m: with_google(url, token, m) for m in models},
}, sys.stdout)
