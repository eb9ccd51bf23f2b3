"""Workers: what functions receive, and what becomes of what they return."""

import asyncio
import contextlib
import json
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from conftest import PATIENCE, Server, until

from evalfleet import (
    AsyncClient,
    ContinueCall,
    Score,
    ScorerCall,
    ToolCallContext,
    ToolError,
    Worker,
    exceptions,
    workers,
)
from evalfleet.schema import describe, of_type

MODEL = "mockllm/model"


@asynccontextmanager
async def serving(worker: Worker) -> AsyncIterator[None]:
    """Serves in the block, then drains."""
    task = asyncio.create_task(worker.serve())

    async def registered() -> bool:
        if task.done():
            task.result()
        return worker._registered is not None and worker._registered.is_set()

    await until(registered)
    yield
    worker.drain()
    await asyncio.wait_for(task, PATIENCE)


async def evaluate(client: AsyncClient, calls: list[dict[str, Any]], **task: Any) -> tuple[dict[str, Any], list[str]]:
    """Runs a sample whose model makes calls of tools and submits: its row, and what the model saw of the tools."""
    steps = [{"tool_calls": [call]} for call in calls]
    steps.append({"tool_calls": [{"function": "submit", "arguments": {"answer": "144"}}]})
    whole = {
        "dataset": [{"id": "one", "input": "Go.", "target": "144", "metadata": {"difficulty": 3}}],
        "solver": {"react": {"submit": {"answer_only": True}, "tools": sorted({call["function"] for call in calls})}},
        "scorer": "includes",
        **task,
    }
    evaluation = await client.evals.create(
        whole, model=MODEL, model_args={"outputs": [{"sample": "one", "outputs": steps}]}
    )
    await evaluation.wait(PATIENCE)
    (row,) = await evaluation.results()
    run = await client.runs.get(row["run"])
    seen = [message.content.text or message.error.message for message in await run.messages() if message.role == 4]
    return row, seen


async def test_tools_of_every_shape(client: AsyncClient) -> None:
    worker = Worker(client=client, max_in_flight=2)

    @worker.tool(parallel=True)
    def square(n: int, label: Literal["plain", "loud"] = "plain") -> str:
        """Squares a number.

        Args:
            n: The number.
            label: How to say it,
                on two lines.
        """
        return f"{n * n}{'!' if label == 'loud' else ''}"

    @worker.tool(store_keys=["seen*"])
    async def remember(call: ToolCallContext, word: str) -> Any:
        """Remembers a word.

        Args:
            word: The word.
        """
        call.progress(f"remembering {word}")
        call.store["seen"] = [*call.store.get("seen", []), word]
        return {"seen": call.store["seen"]}

    @worker.tool()
    def fail(how: str) -> str:
        """Fails.

        Args:
            how: How.
        """
        if how == "slowly":
            raise ToolError("it took too long", type="timeout")
        raise ValueError("no good")

    @worker.tool(name="large", description="Says much.", parameters={"type": "object", "properties": {}})
    def much() -> str:
        return "z" * 3_500_000

    async with serving(worker):
        calls = [
            {"function": "square", "arguments": {"n": 12}},
            {"function": "square", "arguments": {"n": 2, "label": "loud"}},
            {"function": "remember", "arguments": {"word": "a"}},
            {"function": "remember", "arguments": {"word": "b"}},
            {"function": "fail", "arguments": {"how": "slowly"}},
            {"function": "fail", "arguments": {"how": "now"}},
            {"function": "large", "arguments": {}},
        ]
        row, seen = await evaluate(client, calls)
        served = {tool.info.name: tool for tool in await client.tools.list()}
    assert row["state"] == "succeeded"
    assert (served["square"].info.description, served["square"].parallel) == ("Squares a number.", True)
    assert json.loads(served["square"].info.parameters_json)["required"] == ["n"]
    assert seen[:2] == ["144", "4!"]
    assert json.loads(seen[3]) == {"seen": ["a", "b"]}
    assert "it took too long" in seen[4]
    assert "ValueError: no good" in seen[5]
    assert "zzz" in seen[6]


async def test_scorers_and_their_parameters(client: AsyncClient) -> None:
    worker = Worker(client=client)

    @worker.scorer()
    def close_enough(call: ScorerCall, tolerance: float = 0.5) -> Score:
        """Compares numbers."""
        apart = abs(float(call.answer) - float(call.target))
        return Score(
            float(apart <= tolerance),
            answer=call.answer,
            explanation=f"{apart:g} apart, difficulty {call.metadata['difficulty']}",
        )

    @worker.scorer()
    async def length(call: ScorerCall) -> int:
        return len(call.answer)

    async with serving(worker):
        row, _ = await evaluate(client, [], scorer=[{"close_enough": {"tolerance": 1}}, "length"], solver="react")
    assert row["score_close_enough"] == 1
    assert row["answer_close_enough"] == "144"
    assert row["explanation_close_enough"] == "0 apart, difficulty 3"
    assert row["score_length"] == 3


async def test_a_parameter_that_a_scorer_does_not_have_is_refused(client: AsyncClient) -> None:
    worker = Worker(client=client)

    @worker.scorer()
    def lenient(call: ScorerCall, tolerance: float = 0.5) -> float:
        return tolerance

    async with serving(worker):
        with pytest.raises(exceptions.InvalidRequest, match=r"lenient.*tolerence"):
            await evaluate(client, [], scorer={"lenient": {"tolerence": 1}})


async def test_a_scorer_that_fails_fails_the_sample(client: AsyncClient) -> None:
    worker = Worker(client=client)

    @worker.scorer()
    def broken(call: ScorerCall) -> float:
        raise ValueError("cannot judge")

    async with serving(worker):
        row, _ = await evaluate(client, [], scorer="broken")
    assert row["state"] == "failed"
    assert "cannot judge" in row["error"]


async def test_a_function_decides_how_an_agent_continues(client: AsyncClient) -> None:
    worker = Worker(client=client)
    asked: list[str] = []

    @worker.on_continue()
    def guide(call: ContinueCall) -> str | bool:
        """Asks for more, once."""
        asked.append(call.answer)
        return "Go on." if len(asked) == 1 else False

    script = {"outputs": [{"sample": "one", "outputs": ["first", "second"]}]}
    task = {
        "dataset": [{"id": "one", "input": "Go.", "target": "second"}],
        "solver": {"react": {"submit": False, "on_continue": {"worker": "guide"}}},
        "scorer": "includes",
    }
    async with serving(worker):
        evaluation = await client.evals.create(task, model=MODEL, model_args=script)
        await evaluation.wait(PATIENCE)
    (row,) = await evaluation.results()
    assert (row["state"], row["score_includes"]) == ("succeeded", "C")
    assert asked == ["first", "second"]


async def test_a_call_that_is_not_wanted_any_more_is_cancelled(client: AsyncClient) -> None:
    worker = Worker(client=client)
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @worker.scorer()
    async def endless(call: ScorerCall) -> float:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return 1.0

    async with serving(worker):
        task = {"dataset": [{"input": "Hi", "target": "x"}], "solver": "generate", "scorer": "endless"}
        evaluation = await client.evals.create(task, model=MODEL)
        await asyncio.wait_for(begun.wait(), PATIENCE)
        await evaluation.cancel()
        await asyncio.wait_for(cancelled.wait(), PATIENCE)
        assert (await evaluation.wait(PATIENCE)).state == "cancelled"


async def test_a_function_that_does_not_return_after_its_call_was_cancelled_keeps_no_other_call_waiting(
    client: AsyncClient,
) -> None:
    worker = Worker(client=client)
    begun, go = threading.Event(), threading.Event()

    @worker.scorer()
    def stuck(call: ScorerCall) -> float:
        if not begun.is_set():
            begun.set()
            go.wait()
        return 1.0

    async with serving(worker):
        task = {"dataset": [{"input": "Hi", "target": "x"}], "solver": "generate", "scorer": "stuck"}
        first = await client.evals.create(task, model=MODEL)
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        await first.cancel()
        await first.wait(PATIENCE)
        second = await client.evals.create(task, model=MODEL)
        try:
            assert (await second.wait(PATIENCE)).state == "succeeded"
        finally:
            go.set()


async def test_whatever_a_function_raises_fails_its_call(client: AsyncClient) -> None:
    worker = Worker(client=client)

    @worker.scorer()
    def empty(call: ScorerCall) -> float:
        return next(iter(()))

    async with serving(worker):
        row, _ = await evaluate(client, [], scorer="empty")
    assert "StopIteration" in row["error"]


def test_a_file_of_results_has_one_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "LOCK_SECONDS", 0)
    first = Worker(results=tmp_path / "results.db")
    with pytest.raises(RuntimeError, match="another worker's"):
        Worker(results=tmp_path / "results.db")
    first._results.close()
    Worker(results=tmp_path / "results.db")._results.close()


def test_with_parameters_of_its_own_a_function_may_have_any_signature() -> None:
    worker, parameters = Worker(), {"type": "object", "properties": {}}

    @worker.tool(parameters=parameters)
    def tool(value: complex) -> str:
        """Says it."""
        return str(value)

    @worker.scorer(parameters=parameters)
    def scorer(call: ScorerCall, value: complex) -> bool:
        """Judges it."""
        return True

    offered = [(offer.description, json.loads(offer.parameters_json)) for offer in worker._offers]
    assert offered == [("Says it.", parameters), ("Judges it.", parameters)]


async def test_a_draining_worker_answers_its_calls_first(client: AsyncClient) -> None:
    worker = Worker(client=client)
    begun, go = asyncio.Event(), asyncio.Event()

    @worker.scorer()
    async def slow(call: ScorerCall) -> float:
        begun.set()
        await go.wait()
        return 1.0

    async with serving(worker):
        task = {"dataset": [{"input": "Hi", "target": "x"}], "solver": "generate", "scorer": "slow"}
        evaluation = await client.evals.create(task, model=MODEL)
        await asyncio.wait_for(begun.wait(), PATIENCE)
        worker.drain()
        go.set()
        assert (await evaluation.wait(PATIENCE)).state == "succeeded"


async def test_a_refused_registration_raises(client: AsyncClient, server: Server) -> None:
    worker = Worker(client=client)

    @worker.tool(name="bash")
    def shell(command: str) -> str:
        """Runs a command.

        Args:
            command: The command.
        """
        return command

    with pytest.raises(exceptions.EvalfleetError, match="bash"):
        await worker.serve()
    stranger = Worker(server=server.address, token="wrong" * 10)
    stranger.scorer(name="any")(lambda call: 1)
    with pytest.raises(exceptions.TokenInvalid):
        await stranger.serve()


def test_two_functions_of_one_name_are_refused() -> None:
    worker = Worker()
    worker.scorer(name="twice")(lambda call: 1)
    with pytest.raises(ValueError, match="twice"):
        worker.scorer(name="twice")(lambda call: 2)


def test_schemas_come_from_signatures_and_docstrings() -> None:
    def function(a: int, b: list[str], c: float | None = None, d: dict[str, bool] | None = None, e: bool = True) -> str:
        """Does things, and
        more.

        Args:
            a: The first,
                continued.
            b (list): The second.

        Returns:
            Nothing of interest.
        """
        return ""

    text, schema = describe(function)
    assert text == "Does things, and more."
    assert schema["required"] == ["a", "b"]
    assert schema["additionalProperties"] is False, "a misspelled parameter is refused before anything runs"
    assert schema["properties"] == {
        "a": {"type": "integer", "description": "The first, continued."},
        "b": {"type": "array", "items": {"type": "string"}, "description": "The second."},
        "c": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "d": {"anyOf": [{"type": "object", "additionalProperties": {"type": "boolean"}}, {"type": "null"}]},
        "e": {"type": "boolean", "default": True},
    }


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, "a", None], {"enum": [1, "a", None]}),
        (Literal[None], {"type": "null", "enum": [None]}),
        (list, {"type": "array", "items": {}}),
        (dict, {"type": "object", "additionalProperties": {}}),
    ],
)
def test_the_schema_of_a_type(hint: Any, schema: dict[str, Any]) -> None:
    assert of_type(hint) == schema


@pytest.mark.parametrize("function", [lambda *names: "", lambda **names: ""])
def test_a_signature_that_cannot_be_described_is_refused(function: Callable[..., str]) -> None:
    with pytest.raises(TypeError, match="cannot be described"):
        describe(function)


async def test_a_result_that_cannot_be_kept_fails_its_call(client: AsyncClient, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "results.db", isolation_level=None)) as file:
        file.execute("CREATE TABLE results (key PRIMARY KEY, result CHECK (result = 'nothing'))")
    worker = Worker(client=client, results=tmp_path / "results.db")

    @worker.scorer()
    def unkept(call: ScorerCall) -> float:
        return 1.0

    async with serving(worker):
        row, _ = await evaluate(client, [], scorer="unkept")
    assert row["state"] == "failed"
    assert "cannot keep the result: CHECK constraint failed" in row["error"]
