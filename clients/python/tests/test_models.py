"""Calls of models."""

import asyncio
import time
from typing import Any

import pytest
from conftest import Server, until
from grpc import aio

from evalfleet import AsyncClient, ToolCall, connection, exceptions, new_key, text_of
from evalfleet.content.v1.content_pb2 import MessageContent
from evalfleet.messages import Message, message
from evalfleet.model.v1.message_pb2 import ROLE_USER, ChatMessage
from evalfleet.model.v1.model_service_pb2 import AttachGenerateRequest, StreamGenerateResponse

MODEL = "mockllm/model"


async def call(client: AsyncClient, streamed: bool, script: dict[str, Any], timeout: float) -> None:
    """Calls the model, and reads its answer to the end."""
    if streamed:
        async for _ in client.models.stream(MODEL, "Hi", model_args=script, timeout=timeout):
            pass
    else:
        await client.models.generate(MODEL, "Hi", model_args=script, timeout=timeout)


async def test_generate_answers(client: AsyncClient) -> None:
    script = {"outputs": ["Hello."]}
    answer = await client.models.generate(MODEL, "Hi", config={"temperature": 0.5}, model_args=script)
    assert answer.response.config.temperature == 0.5
    assert str(answer) == answer.text == "Hello."
    assert answer.stop_reason == "stop"
    assert answer.usage.output_tokens > 0


@pytest.mark.parametrize("kept", [False, True], ids=["left", "kept"])
async def test_closing_the_client_cancels_a_stream_that_was_not_read_to_its_end(server: Server, kept: bool) -> None:
    async with AsyncClient(data_dir=server.data) as client:
        cancelled = []

        async def cancel(key: str) -> None:
            cancelled.append(key)
            await type(client.models)._cancel(client.models, key)

        client.models._cancel = cancel  # type: ignore[method-assign]
        pieces = client.models.stream(MODEL, "Hi")
        await anext(pieces)
        if not kept:
            del pieces
    assert len(cancelled) == 1


@pytest.mark.parametrize("streamed", [False, True], ids=["call", "stream"])
async def test_a_timeout_holds_although_the_server_is_silent(
    mortal: Server, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    monkeypatch.setattr(connection, "GRACE_SECONDS", 0.1)
    async with AsyncClient(data_dir=mortal.data) as client:
        await client.models.generate(MODEL, "Hi")
        with mortal.frozen(), pytest.raises(exceptions.DeadlineExceeded, match=r"within 0\.2 s"):
            await call(client, streamed, {}, timeout=0.2)


async def test_a_reader_may_take_longer_than_the_time_limit_of_a_stream(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "GRACE_SECONDS", 0)
    text, timeout = "eight seven six five four three two one", 3
    pieces = client.models.stream(MODEL, "Hi", model_args={"outputs": [text]}, timeout=timeout)
    read = (await anext(pieces)).text
    await asyncio.sleep(timeout)
    assert read + "".join([piece.text async for piece in pieces]) == text


async def test_conversations_are_plain_values(client: AsyncClient) -> None:
    conversation: list[Message] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": ["What is in ", {"text": {"text": "a.txt?"}}]},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "1", "function": "cat", "arguments": {"path": "a"}}],
        },
        {"role": "tool", "tool_call_id": "1", "function": "cat", "content": "42"},
        ChatMessage(role=ROLE_USER, content=MessageContent(text="And the capital of France?")),
    ]
    script = {"outputs": [{"contains": "capital of France", "output": "Paris"}]}
    answer = await client.models.generate(MODEL, conversation, model_args=script)
    assert answer.text == "Paris"


@pytest.mark.parametrize(
    ("message", "says"),
    [({"role": "usr", "content": "Hi"}, "roles are system, user"), ({"role": "user", "text": "Hi"}, "'text'")],
)
async def test_a_wrong_message_is_refused_before_the_call(
    client: AsyncClient, message: dict[str, str], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        await client.models.generate(MODEL, [message])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"config": {"tempratur": 1}}, "tempratur"),
        ({"config": {"temperature": "x"}}, "temperature"),
        ({"messages": [{"role": "user", "content": [{"imag": 1}]}]}, "imag"),
        ({"tools": [{"description": "Adds."}]}, "no name"),
        ({"tools": [{"name": "add", "params": {}}]}, "'params'"),
    ],
)
async def test_a_wrong_argument_is_refused_before_the_call(
    client: AsyncClient, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        await client.models.generate(MODEL, **{"messages": "Hi", **arguments})


async def test_tools_and_their_calls(client: AsyncClient) -> None:
    tool = {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer", "description": "A number."}}},
    }
    script = {"outputs": [{"tool_calls": [{"function": "add", "arguments": {"a": 3}}]}]}
    answer = await client.models.generate(MODEL, "Add.", tools=[tool], tool_choice="add", model_args=script)
    assert answer.stop_reason == "tool_calls"
    assert [(call.function, call.arguments) for call in answer.tool_calls] == [("add", {"a": 3})]


def test_the_text_of_a_message() -> None:
    parts = ["one", {"image": {"media": {"uri": "https://there.example/a.png"}}}, "two"]
    assert text_of(message({"role": "user", "content": parts})) == "one\ntwo"
    assert text_of(message("plain")) == "plain"


async def test_scripted_answers_are_plain_values(client: AsyncClient) -> None:
    said = {"text": "Half of", "stop_reason": "max_tokens", "model": "other"}
    choice = {"message": {"role": "assistant", "content": "No."}, "stop_reason": "content_filter"}
    refused = {"model": "other", "choices": [choice], "error": "filtered"}
    called = {
        "text": "I add.",
        "tool_calls": [{"id": "c1", "function": "add", "arguments": {"a": 3}}],
        "model": "other",
    }
    script = {"outputs": [said, refused, called]}
    answers = [await client.models.generate(MODEL, "Scripted", model_args=script) for _ in script["outputs"]]
    assert [answer.text for answer in answers] == ["Half of", "No.", "I add."]
    assert [answer.stop_reason for answer in answers] == ["max_tokens", "content_filter", "tool_calls"]
    assert [answer.response.output.error for answer in answers] == ["", "filtered", ""]
    assert {answer.response.output.model for answer in answers} == {"other"}
    assert answers[2].tool_calls == [ToolCall("c1", "add", {"a": 3})]


async def test_a_stream_yields_pieces_and_then_the_answer(client: AsyncClient) -> None:
    text = "one two three four five six seven eight"
    pieces = [piece async for piece in client.models.stream(MODEL, "Count.", model_args={"outputs": [text]})]
    assert len(pieces) > 2
    assert "".join(piece.text for piece in pieces) == text
    assert pieces[-1].answer is not None
    assert pieces[-1].answer.text == text
    assert all(piece.answer is None for piece in pieces[:-1])


async def test_a_call_with_a_key_happens_once(client: AsyncClient) -> None:
    key = new_key()
    first = await client.models.generate(MODEL, "Hi", config={"temperature": 0.5}, key=key)
    second = await client.models.generate(MODEL, "Hi", config={"temperature": 0.5}, key=key)
    assert second.response == first.response
    with pytest.raises(exceptions.RequestIdReused) as refused:
        await client.models.generate(MODEL, "Bye", key=key)
    assert refused.value.facts["requestId"] == key


async def test_a_cancelled_task_cancels_its_call(client: AsyncClient) -> None:
    slow = {"outputs": [{"contains": "Hi", "output": {"text": "late", "delay_s": 600}}]}
    begun = time.monotonic()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(client.models.generate(MODEL, "Hi", model_args=slow), 0.3)
    (cancelling,) = client._connection._later
    await cancelling
    assert time.monotonic() - begun < 300


async def test_a_cancelled_task_leaves_a_call_with_a_key_of_ones_own(client: AsyncClient) -> None:
    key, slow = new_key(), {"outputs": [{"text": "late", "delay_s": 1}]}
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(client.models.generate(MODEL, "Hi", model_args=slow, key=key), 0.3)
    assert (await client.models.generate(MODEL, "Hi", model_args=slow, key=key)).text == "late"


@pytest.mark.parametrize("streamed", [False, True], ids=["call", "stream"])
async def test_what_a_cancelled_task_waits_for_is_cancelled_on_the_server(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    chosen = new_key()
    monkeypatch.setattr("evalfleet.models.new_key", lambda: chosen)
    slow = {"outputs": [{"contains": "Hi", "output": {"text": "late", "delay_s": 600}}]}

    task = asyncio.create_task(call(client, streamed, slow, timeout=600))
    stubs = await client.stubs()
    attach = AttachGenerateRequest(parent="projects/default", request_id=chosen)

    async def running() -> bool:
        try:
            return await stubs.models.AttachGenerate(attach, metadata=client.metadata()).read() is not aio.EOF
        except aio.AioRpcError:
            return False

    await until(running)
    task.cancel("by the caller")
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.gather(*client._connection._later)
    with pytest.raises(aio.AioRpcError, match="was cancelled"):
        _ = [event async for event in stubs.models.AttachGenerate(attach, metadata=client.metadata())]


async def test_leaving_a_stream_cancels_its_call(client: AsyncClient) -> None:
    script = {"outputs": [{"text": "word " * 2000, "chunk_delay_s": 0.05}]}
    stream = client.models.stream(MODEL, "Hi", model_args=script)
    async for _ in stream:
        break
    await stream.aclose()  # type: ignore[attr-defined]
    (cancelling,) = client._connection._later
    await cancelling


@pytest.mark.parametrize("streamed", [False, True], ids=["call", "stream"])
async def test_a_time_limit_is_an_error_of_its_own_and_a_timeout_error(client: AsyncClient, streamed: bool) -> None:
    slow = {"outputs": [{"contains": "Hi", "output": {"text": "late", "delay_s": 600}}]}
    with pytest.raises(TimeoutError) as late:
        await call(client, streamed, slow, timeout=0.3)
    assert isinstance(late.value, exceptions.DeadlineExceeded)
    assert late.value.reason == "DEADLINE_EXCEEDED"


async def test_a_conversation_larger_than_a_message_travels_in_blobs(client: AsyncClient) -> None:
    large = "x" * 5_000_000 + " capital of France"
    script = {"outputs": [{"contains": "capital of France", "output": "Paris"}]}
    assert (await client.models.generate(MODEL, ["Hi", large], model_args=script)).text == "Paris"


async def test_a_stream_takes_a_conversation_larger_than_a_message(client: AsyncClient) -> None:
    large = "x" * 5_000_000 + " capital of France"
    script = {"outputs": [{"contains": "capital of France", "output": "Paris"}]}
    pieces = [piece async for piece in client.models.stream(MODEL, ["Hi", large], model_args=script)]
    assert "".join(piece.text for piece in pieces) == "Paris"


async def test_models_and_tokens(client: AsyncClient) -> None:
    assert any(model.name.startswith("providers/anthropic/models/") for model in await client.models.list("anthropic"))
    assert (await client.models.count_tokens(MODEL, "Hello there")).message_tokens > 0


async def test_an_unknown_model_says_which_are_known(client: AsyncClient) -> None:
    with pytest.raises(exceptions.ModelNotFound) as failure:
        await client.models.generate("nosuch/x", "Hi")
    assert "mockllm" in failure.value.facts["known"]
    assert failure.value.again == "no"


async def test_a_provider_without_a_key_says_what_to_set(client: AsyncClient) -> None:
    with pytest.raises(exceptions.ProviderNotConfigured, match="OPENAI_API_KEY") as failure:
        await client.models.generate("openai/gpt-4o", "Hi")
    assert failure.value.reason == "PROVIDER_NOT_CONFIGURED"
    assert failure.value.facts["provider"] == "openai"


async def test_answers_are_kept_for_keys_of_ones_own_only(client: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    stubs = await client.stubs()
    own, chosen = new_key(), new_key()
    await client.models.generate(MODEL, "Hi", key=own)
    monkeypatch.setattr("evalfleet.models.new_key", lambda: chosen)
    await client.models.generate(MODEL, "Hi")
    await asyncio.gather(*client._connection._later)

    async def events(key: str) -> list[StreamGenerateResponse]:
        attach = AttachGenerateRequest(parent="projects/default", request_id=key)
        return [event async for event in stubs.models.AttachGenerate(attach, metadata=client.metadata())]

    assert (await events(own))[-1].HasField("completed")
    with pytest.raises(aio.AioRpcError, match="NOT_FOUND"):
        await events(chosen)
