"""Evaluations and runs."""

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import until

from evalfleet import AsyncClient, exceptions, new_key
from evalfleet.agent.v1 import event_pb2
from evalfleet.agent.v1.eval_service_pb2 import GetEvalRequest
from evalfleet.agent.v1.run_pb2 import WAIT_REASON_HOLD

MODEL = "mockllm/model"
SCRIPT = {"outputs": [{"contains": "France", "output": "Paris"}, {"contains": "Norway", "output": "no idea"}]}
TASK: dict[str, Any] = {
    "task": "capitals",
    "dataset": [
        {"id": "france", "input": "The capital of France?", "target": "Paris"},
        {"id": "norway", "input": "The capital of Norway?", "target": "Oslo"},
    ],
    "solver": "generate",
    "scorer": "includes",
}


async def test_an_evaluation_of_a_dict_and_its_rows(client: AsyncClient) -> None:
    evaluation = await client.evals.create(TASK, model=MODEL, model_args=SCRIPT, epochs=2, tags=["nightly"])
    done = await evaluation.wait(60)
    assert done is evaluation
    assert (evaluation.state, evaluation.ended) == ("succeeded", True)
    rows = await evaluation.results()
    assert [(row["sample"], row["epoch"], row["score_includes"]) for row in rows] == [
        ("france", 1, "C"),
        ("norway", 1, "I"),
        ("france", 2, "C"),
        ("norway", 2, "I"),
    ]
    assert rows[0]["explanation_includes"] == "Paris"
    assert rows[0]["tokens"] > 0
    assert {row["state"] for row in rows} == {"succeeded"}
    metrics = {row["metric"]: row["value"] for row in await evaluation.metrics()}
    assert metrics["accuracy"] == 0.5
    assert "nightly" in evaluation.info.spec.tags
    assert evaluation.name in [found.name for found in await client.evals.list()]


async def test_files_that_a_task_names_are_uploaded(client: AsyncClient, tmp_path: Path) -> None:
    rows = [{"input": "The capital of France?", "target": "Paris"}, {"input": "Of Norway?", "target": "Oslo"}]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    (tmp_path / "script.yaml").write_text(json.dumps({"entries": SCRIPT["outputs"]}))
    task = tmp_path / "task.yaml"
    task.write_text(
        "dataset: data/rows.jsonl\nsolver: generate\nscorer: includes\n"
        "model: {name: mockllm/model, args: {script: script.yaml}}\n"
    )
    evaluation = await client.evals.create(task, limit=1)
    await evaluation.wait(60)
    assert [row["score_includes"] for row in await evaluation.results()] == ["C"]
    given = await client.evals.create(task, files={"data/rows.jsonl": b'{"input": "France?", "target": "x"}'})
    await given.wait(60)
    assert [row["score_includes"] for row in await given.results()] == ["I"]


async def test_a_file_that_is_not_there_is_the_servers_error(client: AsyncClient, tmp_path: Path) -> None:
    task = tmp_path / "task.yaml"
    task.write_text("dataset: nosuch.jsonl\nscorer: includes\nmodel: mockllm/model\n")
    with pytest.raises(exceptions.InvalidRequest, match=r"task\.yaml:1.*nosuch.jsonl"):
        await client.evals.create(task)


async def test_a_wrong_task_names_lines_and_known_values(client: AsyncClient, tmp_path: Path) -> None:
    task = tmp_path / "task.yaml"
    task.write_text("dataset: []\nscorerr: match\n")
    with pytest.raises(exceptions.InvalidRequest, match=r"task\.yaml:2"):
        await client.evals.create(task, model=MODEL)
    with pytest.raises(exceptions.ScorerNotFound) as unknown:
        await client.evals.create({**TASK, "scorer": "mtch"}, model=MODEL)
    assert "match" in unknown.value.facts["known"]


async def test_a_check_creates_nothing(client: AsyncClient) -> None:
    before = len(await client.evals.list())
    checked = await client.evals.create(TASK, model=MODEL, check=True)
    assert checked.name == ""
    assert checked.info.progress.total == 2
    assert len(await client.evals.list()) == before


async def test_a_key_makes_one_evaluation(client: AsyncClient) -> None:
    key = new_key()
    first = await client.evals.create(TASK, model=MODEL, key=key)
    assert (await client.evals.create(TASK, model=MODEL, key=key)).name == first.name


async def test_a_watch_shows_every_event_and_the_progress(client: AsyncClient) -> None:
    evaluation = await client.evals.create(TASK, model=MODEL)
    kinds, cursors = [], []
    async for update in evaluation.watch():
        if update.HasField("event"):
            kinds.append(update.event.WhichOneof("kind"))
            cursors.append(update.cursor)
    assert kinds[0] == "eval_created"
    assert kinds.count("sample_finished") == 2
    assert kinds[-1] == "eval_state_changed"
    assert evaluation.info.progress.succeeded == 2
    rest = [update async for update in evaluation.watch(cursors[2], progress=False)]
    assert [update.event.WhichOneof("kind") for update in rest] == kinds[3:]


async def test_a_wait_is_bounded_and_an_evaluation_is_cancelled_resumed_and_deleted(client: AsyncClient) -> None:
    slow = {"outputs": [{"text": "Paris", "delay_s": 600}]}
    evaluation = await client.evals.create({**TASK, "dataset": TASK["dataset"][:1]}, model=MODEL, model_args=slow)
    with pytest.raises(exceptions.DeadlineExceeded):
        await evaluation.wait(0.3)
    await evaluation.cancel("enough")
    assert (await evaluation.wait(60)).state == "cancelled"
    assert (await evaluation.resume()).state == "running"
    await evaluation.cancel()
    await evaluation.wait(60)
    await evaluation.delete()
    with pytest.raises(exceptions.ResourceNotFound):
        await client.evals.get(evaluation.name)


async def test_a_log_is_saved_under_its_name(client: AsyncClient, tmp_path: Path) -> None:
    evaluation = await client.evals.create(TASK, model=MODEL, model_args=SCRIPT)
    await evaluation.wait(60)
    log = await evaluation.save_log(tmp_path)
    assert log.parent == tmp_path
    assert log.suffix == ".eval"
    assert log.read_bytes().startswith(b"PK")
    as_json = await evaluation.save_log(tmp_path / "log.json")
    assert json.loads(as_json.read_text())["status"] == "success"


async def test_a_run_and_its_output(client: AsyncClient) -> None:
    run = await client.runs.create("The capital of France?", model=MODEL, agent="generate")
    assert (await run.wait(60)).state == "succeeded"
    assert await run.output() == "Default output from mockllm/model"
    assert [message.role for message in await run.messages()] == [2, 3]
    kinds = [update.event.WhichOneof("kind") async for update in run.watch() if update.HasField("event")]
    assert kinds[0] == "run_created"
    assert kinds[-1] == "run_finished"
    assert run.name in [found.name for found in await client.runs.list()]
    assert (await client.runs.get(run.name.rpartition("/")[2])).ended
    assert set(kinds) <= set(event_pb2.Event.DESCRIPTOR.fields_by_name)
    await run.delete()


async def test_a_run_of_an_agent_with_parameters_is_cancelled(client: AsyncClient) -> None:
    spec = {"model": {"model": MODEL, "modelArgsJson": json.dumps({"outputs": [{"text": "x", "delay_s": 600}]})}}
    run = await client.runs.create(["Hi"], agent={"react": {"attempts": 2}}, spec=spec)
    await run.post("Look in /etc.")
    await run.cancel("enough")
    assert (await run.wait(60)).state == "cancelled"


async def test_what_tasks_may_name_is_listed(client: AsyncClient) -> None:
    scorers = await client.evals.scorers()
    assert "includes" in [scorer.name for scorer in scorers.scorers]
    assert "accuracy" in scorers.metrics
    assert "mean" in scorers.reducers
    assert "react" in [agent.name.rpartition("/")[2] for agent in await client.runs.agents()]
    assert "bash" in [tool.info.name for tool in await client.tools.list()]


async def test_an_evaluation_is_changed_while_it_runs(client: AsyncClient) -> None:
    slow = {"outputs": [{"contains": "France", "output": {"text": "Paris", "delay_s": 600}}]}
    task = {**TASK, "dataset": TASK["dataset"][:1], "tags": ["first"]}
    evaluation = await client.evals.create(task, model=MODEL, model_args=slow, max_samples=1)
    changed = await evaluation.update(max_samples=7, metadata={"by": "test"})
    assert changed is evaluation
    assert changed.info.spec.max_samples == 7
    stubs = await client.stubs()
    whole = await stubs.evals.GetEval(GetEvalRequest(name=evaluation.name, content=True), metadata=client.metadata())
    assert json.loads(whole.spec.metadata_json) == {"by": "test"}
    assert list(changed.info.spec.tags) == ["first"]
    assert not (await evaluation.update(tags=[])).info.spec.tags
    await evaluation.cancel()


def _script(*outputs: Any) -> dict[str, Any]:
    """A run's specification whose model gives these answers."""
    return {"model": {"model": MODEL, "modelArgsJson": json.dumps({"outputs": list(outputs)})}}


async def test_the_limits_of_a_run_are_changed(client: AsyncClient) -> None:
    slow = {"contains": "Limited", "output": {"text": "late", "delay_s": 600}}
    run = await client.runs.create("Limited", agent="generate", spec={**_script(slow), "limits": {"turns": 5}})
    changed = await run.set_limits({"time": 600, "cost": None, "turns": None, "tokens": 9000})
    assert changed is run
    limits = run.info.limits
    assert (limits.time.seconds, limits.tokens) == (600, 9000)
    assert not limits.HasField("turns")
    with pytest.raises(ValueError, match="turn"):
        await run.set_limits({"turn": 5})
    await run.cancel()


async def test_a_run_is_held_and_resumed(client: AsyncClient) -> None:
    slow = {"tool_calls": [{"function": "submit", "arguments": {"answer": "done"}}], "delay_s": 0.5}
    run = await client.runs.create("Hi", agent="react", spec=_script(slow))
    assert await run.hold("to look") is run

    async def held() -> bool:
        return (await run.refresh()).info.wait.reason == WAIT_REASON_HOLD

    await until(held)
    assert (await (await run.resume()).wait(60)).state == "succeeded"


async def test_an_agent_is_interrupted_with_a_message(client: AsyncClient) -> None:
    slow = {"contains": "Wait", "output": {"text": "late", "delay_s": 600}}
    now = {"contains": "Hurry", "output": {"tool_calls": [{"function": "submit", "arguments": {"answer": "done"}}]}}
    run = await client.runs.create("Wait", agent="react", spec=_script(now, slow))
    async for update in run.watch():
        if update.event.HasField("model_intent"):
            break
    await run.interrupt("Hurry up.", reason="too slow")
    assert (await run.wait(60)).state == "succeeded"
    assert await run.output() == "done"


async def test_one_call_of_a_tool_is_stopped(client: AsyncClient) -> None:
    calls = [
        {"tool_calls": [{"id": "slow", "function": "bash", "arguments": {"command": "sleep 600"}}]},
        {"tool_calls": [{"function": "submit", "arguments": {"answer": "went on"}}]},
    ]
    spec = {**_script(*calls), "sandboxes": {"default": {"driver": "local"}}}
    run = await client.runs.create("Stop it.", agent="react", tools=["bash"], spec=spec)
    async for update in run.watch():
        if update.event.HasField("tool_intent"):
            break
    await run.cancel_call("slow", reason="enough")
    assert (await run.wait(60)).state == "succeeded"
    assert await run.output() == "went on"
