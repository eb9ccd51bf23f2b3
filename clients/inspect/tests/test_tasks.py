"""Tasks have the same scores and the same events with evalfleet as with Inspect's own model and sandbox."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import own
import pytest
from conftest import DOCKER_IMAGE, DRIVERS, Server
from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai.event import Event, ModelEvent, SandboxEvent, ScoreEvent, ToolEvent
from inspect_ai.log import EvalLog
from inspect_ai.model import Model, get_model


def our_model(entries: list[dict[str, Any]], folder: Path) -> Model:
    script = folder / "script.json"
    script.write_text(json.dumps({"entries": entries}))
    return get_model("evalfleet/mockllm/model", script=str(script), memoize=False)


def evaluated(task: Task, model: Model, folder: Path) -> EvalLog:
    (log,) = evaluate(task, model=model, sandbox="evalfleet", display="none", log_dir=str(folder), max_samples=4)
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


RIGHT = {"humaneval": (82, 164), "gsm8k": (100, 200)}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("name", own.CASES)
def test_a_task_has_the_same_scores_and_events(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, driver: str
) -> None:
    make, script = own.CASES[name]
    theirs = own.evaluated(name, tmp_path / "own")
    assert theirs.status == "success", theirs.error
    monkeypatch.setenv("EVALFLEET_SANDBOX_DRIVER", driver)
    monkeypatch.setenv("EVALFLEET_SANDBOX_IMAGE", DOCKER_IMAGE if driver == "docker" else "")
    ours = evaluated(make(), our_model(script(), tmp_path), tmp_path / "ours")
    assert results(ours) == results(theirs)
    assert accuracy(ours) == accuracy(theirs) == 0.5
    if os.environ.get("EVALFLEET_DATA") and name in RIGHT:
        right, all_ = RIGHT[name]
        assert ours.results is not None
        assert (accuracy(ours) * all_, ours.results.completed_samples) == (right, all_)
    assert server.sandboxes() == []
