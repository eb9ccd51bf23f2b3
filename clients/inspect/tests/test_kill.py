"""Evaluations go on while the server is killed and comes back, and leave nothing behind when they are ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from conftest import Server
from inspect_ai.log import read_eval_log

TASK = """
from inspect_ai import Task, task
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match
from inspect_ai.tool import bash

@task
def counts() -> Task:
    samples = [Sample(id=n, input="go", target="done") for n in range(4)]
    return Task(dataset=samples, solver=react(tools=[bash()]), scorer=match(), sandbox=("evalfleet", "sandbox.yaml"))
"""
STEPS = 6


def script(folder: Path, delay: float) -> str:
    """Each step appends a line to a file of the sandbox, so that a repeated or a lost one is seen."""
    steps = [
        {
            "delay_s": delay,
            "tool_calls": [{"function": "bash", "arguments": {"command": f"sleep {delay}; echo {n} >> log"}}],
        }
        for n in range(STEPS)
    ]
    last = {"tool_calls": [{"function": "bash", "arguments": {"command": "cat log"}}]}
    end = {"tool_calls": [{"function": "submit", "arguments": {"answer": "done"}}]}
    path = folder / "script.json"
    path.write_text(json.dumps({"entries": [{"outputs": [*steps, last, end]}]}))
    return str(path)


def started(server: Server, folder: Path, delay: float, lease: int = 120) -> subprocess.Popen[bytes]:
    (folder / "counts.py").write_text(TASK)
    (folder / "sandbox.yaml").write_text(f"lease: {lease}\n")
    # An interrupt reaches it also where this test itself ignores interrupts.
    program = (
        "import signal; signal.signal(2, signal.default_int_handler); from inspect_ai._cli.main import main; main()"
    )
    inspect = [sys.executable, "-c", program, "eval", "counts.py"]
    model = ["--model", "evalfleet/mockllm/model", "-M", f"script={script(folder, delay)}"]
    return subprocess.Popen(
        [*inspect, *model, "--display", "none", "--log-dir", "logs"],
        cwd=folder,
        env={**os.environ, **server.environment},
    )


def wait_for_sandboxes(server: Server, count: int, process: subprocess.Popen[bytes]) -> None:
    while len(server.sandboxes()) < count:
        assert process.poll() is None, "the evaluation ended before its samples began"


def test_a_server_that_is_killed_in_the_middle_of_an_evaluation(own_server: Server, tmp_path: Path) -> None:
    process = started(own_server, tmp_path, 0.5)
    wait_for_sandboxes(own_server, 4, process)
    own_server.kill()
    own_server.start()
    assert process.wait(timeout=120) == 0
    (path,) = (tmp_path / "logs").iterdir()
    log = read_eval_log(str(path))
    assert log.status == "success", log.error
    assert log.samples is not None
    for sample in log.samples:
        (told,) = [m.text for m in sample.messages if m.role == "tool" and m.text.startswith("0\n")]
        assert told == "".join(f"{n}\n" for n in range(STEPS)), "each command ran exactly once"
        assert sample.scores is not None
        assert sample.scores["match"].value == "C"
    assert own_server.sandboxes() == []


def test_an_interrupted_evaluation_leaves_no_sandbox(own_server: Server, tmp_path: Path) -> None:
    process = started(own_server, tmp_path, 60)
    wait_for_sandboxes(own_server, 4, process)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=60)
    assert own_server.sandboxes() == []


def test_an_evaluation_that_was_killed_leaves_nothing_after_a_lease(own_server: Server, tmp_path: Path) -> None:
    process = started(own_server, tmp_path, 60, lease=2)
    wait_for_sandboxes(own_server, 4, process)
    process.kill()
    process.wait()
    while own_server.sandboxes():
        time.sleep(0.2)
