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
BOUND = 240.0
"""Seconds for every wait. All real ones are far shorter, so that only a hang reaches it."""


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


class Evaluation:
    """An evaluation in a process of its own, whose output a failed test shows."""

    def __init__(self, server: Server, folder: Path, delay: float, lease: int = 120) -> None:
        (folder / "counts.py").write_text(TASK)
        (folder / "sandbox.yaml").write_text(f"lease: {lease}\n")
        # An interrupt reaches it also where this test itself ignores interrupts.
        program = (
            "import signal; signal.signal(2, signal.default_int_handler); from inspect_ai._cli.main import main; main()"
        )
        inspect = [sys.executable, "-c", program, "eval", "counts.py"]
        model = ["--model", "evalfleet/mockllm/model", "-M", f"script={script(folder, delay)}"]
        self.server = server
        self.said = folder / "said.txt"
        with self.said.open("w") as said:
            self.process = subprocess.Popen(
                [*inspect, *model, "--display", "plain", "--log-dir", "logs"],
                cwd=folder,
                env={**os.environ, **server.environment},
                stdout=said,
                stderr=subprocess.STDOUT,
            )

    def wait_for_sandboxes(self, count: int) -> None:
        """Waits until so many of its samples have begun."""
        begun = time.monotonic()
        while len(self.server.sandboxes()) < count:
            self.check(self.process.poll() is None, "it ended before its samples began")
            self.check(time.monotonic() - begun < BOUND, f"fewer than {count} samples began within {BOUND} s")

    def wait(self) -> int:
        """Its exit code."""
        try:
            return self.process.wait(timeout=BOUND)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.check(False, f"it did not end within {BOUND} s")
            raise

    def check(self, holds: bool, what: str) -> None:
        """Fails with what the evaluation has printed."""
        assert holds, (
            f"{what}; the evaluation printed:\n{self.said.read_text()}\nthe server:\n{''.join(self.server.said)}"
        )


def test_a_server_that_is_killed_in_the_middle_of_an_evaluation(own_server: Server, tmp_path: Path) -> None:
    evaluation = Evaluation(own_server, tmp_path, 0.5)
    # One is enough: on a busy machine the first sample may end before the last one begins.
    evaluation.wait_for_sandboxes(1)
    own_server.kill()
    own_server.start()
    evaluation.check(evaluation.wait() == 0, "it failed")
    (path,) = (tmp_path / "logs").iterdir()
    log = read_eval_log(str(path))
    evaluation.check(log.status == "success", f"it is {log.status}: {log.error}")
    assert log.samples is not None
    for sample in log.samples:
        told = [m.text for m in sample.messages if m.role == "tool" and m.text.startswith("0\n")]
        assert told == ["".join(f"{n}\n" for n in range(STEPS))], "each command ran exactly once"
        assert sample.scores is not None
        assert sample.scores["match"].value == "C"
    assert own_server.sandboxes() == []


def test_an_interrupted_evaluation_leaves_no_sandbox(own_server: Server, tmp_path: Path) -> None:
    evaluation = Evaluation(own_server, tmp_path, 60)
    evaluation.wait_for_sandboxes(4)
    evaluation.process.send_signal(signal.SIGINT)
    evaluation.wait()
    assert own_server.sandboxes() == []


def test_an_evaluation_that_was_killed_leaves_nothing_after_a_lease(own_server: Server, tmp_path: Path) -> None:
    evaluation = Evaluation(own_server, tmp_path, 60, lease=2)
    evaluation.wait_for_sandboxes(4)
    evaluation.process.kill()
    evaluation.wait()
    begun = time.monotonic()
    while left := own_server.sandboxes():
        assert time.monotonic() - begun < BOUND, f"these live after {BOUND} s: {left}"
        time.sleep(0.2)
