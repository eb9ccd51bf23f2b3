"""Tasks have the same scores and the same events with evalfleet as with Inspect's own model and sandbox."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tasks
from conftest import DOCKER_IMAGE, DRIVERS, REPOSITORY, Server
from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai.event import Event, ModelEvent, SandboxEvent, ScoreEvent, ToolEvent
from inspect_ai.log import EvalLog
from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelOutput, ModelUsage, get_model
from inspect_ai.solver._task_state import sample_state
from inspect_ai.tool import ToolChoice, ToolInfo


def data(name: str) -> str:
    """A published data set where EVALFLEET_DATA names their folder, else a small one of the same form."""
    if folder := os.environ.get("EVALFLEET_DATA"):
        return str(Path(folder) / name)
    return str(REPOSITORY / "pkg/datatest/small" / name.removesuffix(".gz"))


def own_model(entries: list[dict[str, Any]]) -> Model:
    """Inspect's own scripted model, with the answers that a script gives by sample and turn."""
    scripts = {entry["sample"]: entry for entry in entries}

    def answer(
        messages: list[ChatMessage], offered: list[ToolInfo], choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        state = sample_state()
        assert state is not None
        entry = scripts[str(state.sample_id)]
        turn = sum(message.role == "assistant" for message in messages)
        output = entry["output"] if "output" in entry else entry["outputs"][turn]
        made = ModelOutput.from_content("mockllm/model", output["text"])
        for call in output.get("tool_calls", []):
            made = ModelOutput.for_tool_call(
                "mockllm/model", call["function"], call["arguments"], tool_call_id=call["id"], content=output["text"]
            )
        made.usage = ModelUsage(**output["usage"])
        return made

    return get_model("mockllm/model", custom_outputs=answer, memoize=False)


def our_model(entries: list[dict[str, Any]], folder: Path) -> Model:
    script = folder / "script.json"
    script.write_text(json.dumps({"entries": entries}))
    return get_model("evalfleet/mockllm/model", script=str(script), memoize=False)


def evaluated(task: Task, model: Model, sandbox: Any, folder: Path) -> EvalLog:
    (log,) = evaluate(
        task, model=model, sandbox=sandbox, display="none", log_dir=str(folder), max_samples=1 if sandbox is None else 4
    )
    assert log.status == "success", log.error
    return log


def shown(event: Event) -> tuple[Any, ...] | None:
    """What an event says, without names, ids and times. None: an event of another kind, or of Inspect's own set-up."""
    if isinstance(event, ModelEvent):
        calls = [(c.id, c.function, c.arguments) for c in event.output.message.tool_calls or []]
        inputs = [(m.role, m.text) for m in event.input]
        offered = [tool.model_dump() for tool in event.tools]
        choices = (event.output.stop_reason, event.output.completion, calls)
        return ("model", inputs, offered, event.tool_choice, choices, event.error, event.config.model_dump())
    if isinstance(event, ToolEvent):
        return ("tool", event.id, event.function, event.arguments, event.result, event.error)
    if isinstance(event, SandboxEvent):
        if "unset CDPATH" in (event.cmd or "") or "inspect-sandbox-tools" in (event.cmd or ""):
            return None  # Inspect puts its own tools into a sandbox, as the user that the sandbox allows.
        return ("sandbox", event.action, event.cmd, event.file, event.input, event.result, event.output)
    if isinstance(event, ScoreEvent):
        return ("score", event.score.value, event.score.answer)
    return None


def results(log: EvalLog) -> dict[Any, Any]:
    assert log.samples is not None
    return {
        sample.id: (
            {name: (score.value, score.answer) for name, score in (sample.scores or {}).items()},
            [(message.role, message.text) for message in sample.messages],
            [told for event in sample.events if (told := shown(event)) is not None],
        )
        for sample in log.samples
    }


def accuracy(log: EvalLog) -> float:
    assert log.results is not None
    return log.results.scores[0].metrics["accuracy"].value


CASES: dict[str, tuple[Callable[[], Task], Callable[[], list[dict[str, Any]]]]] = {
    "humaneval": (
        lambda: tasks.humaneval(data("HumanEval.jsonl.gz")),
        lambda: tasks.humaneval_script(data("HumanEval.jsonl.gz")),
    ),
    "gsm8k": (
        lambda: tasks.gsm8k(data("gsm8k_test_200.jsonl")),
        lambda: tasks.gsm8k_script(data("gsm8k_test_200.jsonl")),
    ),
    "agentic": (tasks.agentic, tasks.agentic_script),
}
RIGHT = {"humaneval": (82, 164), "gsm8k": (100, 200)}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("name", CASES)
def test_a_task_has_the_same_scores_and_events(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, driver: str
) -> None:
    make, script = CASES[name]
    # Inspect's sandbox on this machine hangs where an earlier run has left its tools without their server.
    shutil.rmtree("/var/tmp/.da7be258e003d428", ignore_errors=True)
    own = evaluated(make(), own_model(script()), None, tmp_path / "own")
    monkeypatch.setenv("EVALFLEET_SANDBOX_DRIVER", driver)
    monkeypatch.setenv("EVALFLEET_SANDBOX_IMAGE", DOCKER_IMAGE if driver == "docker" else "")
    ours = evaluated(make(), our_model(script(), tmp_path), "evalfleet", tmp_path / "ours")
    assert results(ours) == results(own)
    assert accuracy(ours) == accuracy(own) == 0.5
    if os.environ.get("EVALFLEET_DATA") and name in RIGHT:
        right, all_ = RIGHT[name]
        assert ours.results is not None
        assert (accuracy(ours) * all_, ours.results.completed_samples) == (right, all_)
    assert server.sandboxes() == []
