"""Calls of models through Inspect, with a scripted model behind the server."""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Server, until
from evalfleet.connection import Connection
from evalfleet.model.v1 import model_service_pb2 as calls
from evalfleet.model.v1.model_service_pb2_grpc import LimitServiceStub
from grpc import aio
from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai._util.error import PrerequisiteError
from inspect_ai._util.retry import http_retries_count
from inspect_ai.dataset import Sample
from inspect_ai.event import ModelEvent
from inspect_ai.log import EvalLog
from inspect_ai.model import (
    ChatMessageAssistant,
    ChatMessageUser,
    ContentImage,
    ContentReasoning,
    GenerateConfig,
    Model,
    get_model,
)
from inspect_ai.model._model import ModelRefusalError
from inspect_ai.model._stream import StreamEvent
from inspect_ai.scorer import model_graded_qa
from inspect_ai.tool import ToolInfo

from evalfleet_inspect.connection import Target, connection
from evalfleet_inspect.errors import ModelDeadlineError, ModelServerError, ModelServerUnreachableError


def scripted(*outputs: Any, config: GenerateConfig | None = None, **script_or_args: Any) -> Model:
    """A model that gives these answers in order, or by the `entries` of a script."""
    entries = script_or_args.pop("entries", None)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"entries": entries} if entries else {"outputs": outputs}, file)
        file.flush()
        return get_model(
            "evalfleet/mockllm/model",
            config=config or GenerateConfig(),
            memoize=False,
            script=file.name,
            **script_or_args,
        )


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        try:
            await test()
        finally:
            await connection(Target()).close()

    asyncio.run(asyncio.wait_for(whole(), 60))


async def in_flight(count: int) -> bool:
    """Whether the server has so many calls of scripted models under way."""
    connected = connection(Target())
    place = await connected.server()
    request = calls.ListConnectionPoolsRequest(parent="accounts/mockllm/default")
    async with aio.insecure_channel(place.address) as channel:
        answer = await LimitServiceStub(channel).ListConnectionPools(request, metadata=connected.metadata())
    return sum(pool.in_flight for pool in answer.connection_pools) == count


def test_an_answer_has_its_parts_and_the_raw_call(server: Server) -> None:
    async def test() -> None:
        model = scripted(
            {
                "text": "the answer",
                "reasoning": "since",
                "tool_calls": [{"function": "bash", "arguments": {"cmd": "ls"}, "id": "c1"}],
                "usage": {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12, "reasoning_tokens": 2},
            }
        )
        tool = ToolInfo(name="bash", description="runs")
        output = await model.generate([ChatMessageUser(content="hi")], tools=[tool])
        message = output.message
        assert message.text == "the answer"
        assert isinstance(message.content, list)
        assert isinstance(message.content[0], ContentReasoning)
        assert message.content[0].reasoning == "since"
        assert message.tool_calls is not None
        assert (message.tool_calls[0].id, message.tool_calls[0].arguments) == ("c1", {"cmd": "ls"})
        assert output.stop_reason == "tool_calls"
        assert output.usage is not None
        assert (output.usage.input_tokens, output.usage.output_tokens, output.usage.reasoning_tokens) == (5, 7, 2)

    run(test)


def test_pieces_of_an_answer_reach_inspect_as_they_come(server: Server) -> None:
    async def test() -> None:
        seen: list[StreamEvent] = []

        async def on_stream(event: StreamEvent) -> None:
            seen.append(event)

        model = scripted(
            {"text": "one two three", "reasoning": "hm", "tool_calls": [{"function": "f", "arguments": {"a": 1}}]}
        )
        output = await model.generate("hi", tools=[ToolInfo(name="f", description="")], on_stream=on_stream)
        assert "".join(e.text for e in seen if e.type == "text") == output.completion == "one two three"
        assert "".join(e.reasoning for e in seen if e.type == "reasoning") == "hm"
        calls = [e for e in seen if e.type == "tool_call"]
        assert {e.function for e in calls} == {"f"}
        assert json.loads("".join(e.arguments for e in calls)) == {"a": 1}

    run(test)


def test_an_attempt_that_fails_in_the_middle_of_a_stream_voids_its_pieces(server: Server) -> None:
    async def test() -> None:
        seen: list[str] = []

        async def on_stream(event: StreamEvent) -> None:
            seen.append(event.type)

        failing = {"text": "a b c d e f g", "error": {"status": 503, "times": 1, "after_chunks": 2}}
        model = scripted(entries=[{"output": failing}])
        output = await model.generate("hi", on_stream=on_stream)
        assert output.completion == "a b c d e f g"
        assert "retry" in seen

    run(test)


def test_the_server_retries_and_inspect_counts_them(server: Server) -> None:
    async def test() -> None:
        model = scripted(
            entries=[{"output": {"text": "late", "error": {"status": 503, "times": 1, "retry_after_s": 0.01}}}]
        )
        before = http_retries_count()
        assert (await model.generate("hi")).completion == "late"
        assert http_retries_count() == before + 1

    run(test)


def test_a_rate_limit_that_outlasts_max_retries_is_an_error_with_its_status(server: Server) -> None:
    async def test() -> None:
        limited = {"error": {"status": 429, "message": "slow down", "retry_after_s": 0.01}}
        model = scripted(entries=[{"output": limited}], config=GenerateConfig(max_retries=1))
        with pytest.raises(Exception, match="PROVIDER_RATE_LIMITED") as raised:
            await model.generate("hi")
        assert getattr(raised.value, "status_code", None) == 429

    run(test)


def test_timeout_of_the_whole_call_is_the_servers(server: Server) -> None:
    async def test() -> None:
        away = {"error": {"status": 503}}
        model = scripted(entries=[{"output": away}], config=GenerateConfig(timeout=1))
        with pytest.raises(Exception, match="PROVIDER_UNAVAILABLE"):
            await model.generate("hi")

    run(test)


def test_attempt_timeout_cuts_a_call_and_makes_it_again(server: Server) -> None:
    async def test() -> None:
        # On a busy machine an attempt at an answer that comes at once may be cut too.
        model = scripted({"text": "slow", "delay_s": 60}, *["fast"] * 9, config=GenerateConfig(attempt_timeout=2))
        assert (await model.generate("hi")).completion == "fast"

    run(test)


def test_a_cancelled_call_is_cancelled_at_the_server(server: Server) -> None:
    async def test() -> None:
        model = scripted({"text": "slow", "delay_s": 600})
        call = asyncio.create_task(model.generate("hi"))
        await until(lambda: in_flight(1))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: in_flight(0))

    run(test)


def test_a_refusal_is_a_stop_reason_or_with_fail_on_refusal_an_error(server: Server) -> None:
    async def test() -> None:
        refused = {"text": "I will not", "stop_reason": "content_filter"}
        again = {"text": "Never", "stop_reason": "content_filter"}
        output = await scripted(refused).generate("hi")
        assert (output.stop_reason, output.completion) == ("content_filter", "I will not")
        with pytest.raises(ModelRefusalError):
            await scripted(again, config=GenerateConfig(fail_on_refusal=True)).generate("hi")

    run(test)


def test_a_full_context_is_a_stop_reason(server: Server) -> None:
    async def test() -> None:
        output = await scripted({"text": "", "stop_reason": "model_length"}).generate("hi")
        assert output.stop_reason == "model_length"

    run(test)


def test_the_servers_cache_answers_without_spending_tokens(server: Server) -> None:
    async def test() -> None:
        model = scripted("first", "second", cache=True)
        one = await model.generate("cached?")
        two = await model.generate("cached?")
        assert (one.completion, two.completion) == ("first", "first")
        assert one.usage is not None
        assert two.usage is None
        assert two.metadata is not None
        assert two.metadata["evalfleet"]["cache"] == "read"
        assert two.metadata["evalfleet"]["cached_usage"]["output_tokens"] == one.usage.output_tokens

    run(test)


def test_a_batch_where_there_is_none_is_refused_by_name(server: Server) -> None:
    with pytest.raises(PrerequisiteError, match=r"CAPABILITY_UNSUPPORTED.*batch"):
        scripted("x", config=GenerateConfig(batch=True))


def test_tokens_are_counted_by_the_server(server: Server) -> None:
    async def test() -> None:
        model = scripted("x")
        assert await model.count_tokens("how many tokens are these?") > 3
        picture = ContentImage(image="data:image/png;base64,iVBORw0KGgo=")
        assert await model.count_tokens([ChatMessageUser(content=[picture])]) > 0

    run(test)


def test_compaction_that_the_model_lacks_is_not_implemented(server: Server) -> None:
    async def test() -> None:
        with pytest.raises(NotImplementedError, match="CAPABILITY_UNSUPPORTED"):
            await scripted("x").compact([ChatMessageUser(content="hi"), ChatMessageAssistant(content="ho")], [])

    run(test)


def test_large_messages_travel_both_ways(server: Server) -> None:
    async def test() -> None:
        size = 6 << 20
        model = scripted({"text": "x" * size})
        picture = ContentImage(image="data:image/png;base64," + "A" * size)
        output = await model.generate([ChatMessageUser(content=[picture])])
        assert len(output.completion) == size

    run(test)


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        ("evalfleet/openai/gpt-4o", {}, "PROVIDER_NOT_CONFIGURED"),
        ("evalfleet/opnai/gpt-4o", {}, "MODEL_NOT_FOUND"),
        ("evalfleet/gpt-4o", {}, "PROVIDER/MODEL"),
        ("evalfleet/mockllm/model", {"api_key": "sk-1"}, "keys of providers"),
        ("evalfleet/mockllm/model", {"spelling": 1}, "spelling"),
        ("evalfleet/mockllm/model", {"cache": "soon"}, "-M cache=soon"),
        ("evalfleet/mockllm/model", {"server": "127.0.0.1:1", "patience": 0.1}, "127.0.0.1:1 does not answer"),
    ],
)
def test_a_set_up_that_cannot_work_is_told_before_the_first_sample(
    server: Server, model: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(PrerequisiteError, match=message):
        get_model(model, memoize=False, **arguments)


def test_a_wrong_token_is_told_before_the_first_sample(server: Server, tmp_path: Path) -> None:
    wrong = tmp_path / "token"
    wrong.write_text("wrong")
    wrong.chmod(0o600)
    with pytest.raises(PrerequisiteError, match="TOKEN_INVALID"):
        get_model("evalfleet/mockllm/model", memoize=False, token_file=str(wrong))


def test_a_server_that_goes_away_ends_a_call_after_the_patience(own_server: Server) -> None:
    async def test() -> None:
        model = scripted("x", patience=0.5)
        own_server.kill()
        with pytest.raises(ModelServerUnreachableError, match="does not answer") as raised:
            await model.generate("hi")
        assert isinstance(raised.value, ConnectionError)

    run(test)


def test_a_server_that_restarts_in_the_middle_of_a_call_answers_it(own_server: Server) -> None:
    async def test() -> None:
        model = scripted({"text": "survived", "delay_s": 1})
        call = asyncio.create_task(model.generate("hi"))
        await until(lambda: in_flight(1))
        own_server.kill()
        await asyncio.to_thread(own_server.start)
        assert (await call).completion == "survived"

    run(test)


def test_errors_have_types_that_inspect_users_know() -> None:
    assert issubclass(ModelServerUnreachableError, ConnectionError)
    assert issubclass(ModelDeadlineError, TimeoutError)
    assert issubclass(ModelServerError, RuntimeError)


def evaluated(model: Model, **arguments: Any) -> EvalLog:
    task = Task(dataset=[Sample(input="Say it", target="it", id="a"), Sample(input="Say it", target="it", id="b")])
    (log,) = evaluate(task, model=model, display="none", log_format="json", **arguments)
    return log


def test_an_evaluation_logs_the_raw_call_and_the_sample_reaches_the_server(server: Server, tmp_path: Path) -> None:
    entries = [{"sample": s, "epoch": e, "turn": 1, "output": f"{s}{e}"} for s in "ab" for e in (1, 2)]
    log = evaluated(scripted(entries=entries), epochs=2, log_dir=str(tmp_path), log_model_api=True)
    assert log.status == "success", log.error
    assert log.eval.model == "evalfleet/mockllm/model"
    assert log.samples is not None
    assert sorted(s.output.completion for s in log.samples) == ["a1", "a2", "b1", "b2"]
    (event,) = [e for e in log.samples[0].events if isinstance(e, ModelEvent)]
    assert event.call is not None
    assert event.call.request
    assert event.call.response
    assert event.call.time is not None


def test_the_role_of_a_model_reaches_the_server(server: Server, tmp_path: Path) -> None:
    entries = [{"role": "grader", "output": "GRADE: C"}, {"output": "it"}]
    task = Task(dataset=[Sample(input="Say it", target="it")], scorer=model_graded_qa())
    roles = {"grader": scripted(entries=entries)}
    (log,) = evaluate(task, scripted(entries=entries), model_roles=roles, display="none", log_dir=str(tmp_path))
    assert log.status == "success", log.error
    assert log.samples is not None
    assert log.samples[0].output.completion == "it"
    assert (log.samples[0].scores or {})["model_graded_qa"].value == "C"


def test_screenshots_stay_where_the_model_needs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    one = Server(tmp_path)
    for name, value in one.environment.items():
        monkeypatch.setenv(name, value)
    try:
        assert get_model("evalfleet/openai/gpt-5.4").api.disable_computer_screenshot_truncation()
        assert not scripted("x").api.disable_computer_screenshot_truncation()
    finally:
        one.stop()


def test_the_connection_of_an_ended_event_loop_is_given_up(server: Server) -> None:
    async def used() -> weakref.ref[Connection]:
        one = connection(Target())
        await one.server()
        return weakref.ref(one)

    first = asyncio.run(used())
    asyncio.run(used())
    gc.collect()
    assert first() is None


def test_a_failed_call_fails_the_sample_with_our_reason(server: Server, tmp_path: Path) -> None:
    model = scripted(entries=[{"output": {"error": {"status": 400, "message": "bad request"}}}])
    log = evaluated(model, log_dir=str(tmp_path))
    assert log.status == "error"
    assert log.error is not None
    assert "bad request" in log.error.message


def test_a_token_limit_ends_a_sample(server: Server, tmp_path: Path) -> None:
    usage = {"input_tokens": 500, "output_tokens": 500, "total_tokens": 1000}
    log = evaluated(scripted(*[{"text": "x", "usage": usage}] * 2), token_limit=100, log_dir=str(tmp_path))
    assert log.samples is not None
    assert {s.limit.type for s in log.samples if s.limit} == {"token"}
