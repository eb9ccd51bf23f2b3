"""Evaluates a task with Inspect's own scripted model and its own sandbox on this machine.

python own.py TASK LOGS, with the names of `CASES`.

Inspect leaves a server and its tools in /var/tmp of the machine. A later run would use those, and would hang without
the server. So the evaluation has a /var/tmp and processes of its own, which end with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tasks
from conftest import REPOSITORY
from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai.log import EvalLog, read_eval_log
from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelOutput, ModelUsage, get_model
from inspect_ai.solver._task_state import sample_state
from inspect_ai.tool import ToolChoice, ToolInfo


def data(name: str) -> str:
    """A published data set where EVALFLEET_DATA names their folder, else a small one of the same form."""
    if folder := os.environ.get("EVALFLEET_DATA"):
        return str(Path(folder) / name)
    return str(REPOSITORY / "pkg/datatest/small" / name.removesuffix(".gz"))


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


def scripted(entries: list[dict[str, Any]]) -> Model:
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


def evaluated(name: str, logs: Path) -> EvalLog:
    """The log of the task of that name."""
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        apart.append("--map-root-user")
    script = 'mount -t tmpfs -o mode=1777 tmpfs /var/tmp && exec "$@"'
    evaluation = [sys.executable, __file__, name, str(logs)]
    subprocess.run([*apart, "sh", "-c", script, "sh", *evaluation], check=True, timeout=300)
    (path,) = logs.iterdir()
    return read_eval_log(str(path))


if __name__ == "__main__":
    make, script = CASES[sys.argv[1]]
    evaluate(make(), model=scripted(script()), display="none", log_dir=sys.argv[2], max_samples=1)
