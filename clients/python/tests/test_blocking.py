"""The methods for programs without asyncio."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import PATIENCE, Server, free_port

import evalfleet
from evalfleet import AsyncProcess, AsyncSandbox, Client, blocking, exceptions

MODEL = "mockllm/model"


@pytest.fixture
def sync(server: Server) -> Iterator[Client]:
    with Client(data_dir=server.data) as made:
        yield made


@pytest.mark.parametrize("name", [name for name in evalfleet.__all__ if name.startswith("Async")])
def test_every_asynchronous_class_has_its_twin(name: str) -> None:
    """The twin has each public member, with the same parameters."""
    only_async = {"stubs", "metadata"} if name == "AsyncClient" else set()
    original, twin = getattr(evalfleet, name), getattr(evalfleet, name.removeprefix("Async"))
    for member, value in inspect.getmembers(original):
        if member.startswith("_") or member in only_async:
            continue
        assert hasattr(twin, member), member
        if inspect.isfunction(value):
            assert list(inspect.signature(getattr(twin, member)).parameters) == list(
                inspect.signature(value).parameters
            )
    own, theirs = inspect.signature(twin.__init__), inspect.signature(original.__init__)
    assert not issubclass(twin, blocking.Twin) or own != theirs
    if name == "AsyncClient":
        assert own.parameters == theirs.parameters


def test_models_sandboxes_evaluations_and_runs(sync: Client) -> None:
    assert sync.info().version
    assert sync.models.generate(MODEL, "Hi").text == "Default output from mockllm/model"
    assert "".join(piece.text for piece in sync.models.stream(MODEL, "Hi")) == "Default output from mockllm/model"
    with sync.sandboxes.create(driver="local") as sandbox:
        assert sandbox.exec("echo hi").text == "hi\n"
        with sandbox.start("cat; echo done", input="in\n") as process:
            assert "".join(piece.text for piece in process) == "in\ndone\n"
            assert process.wait().ok
    with pytest.raises(exceptions.SandboxTerminated):
        sandbox.exec("true")
    task = {"dataset": [{"input": "Hi", "target": "Default"}], "solver": "generate", "scorer": "includes"}
    evaluation = sync.evals.create(task, model=MODEL).wait(60)
    assert evaluation.state == "succeeded"
    assert [row["score_includes"] for row in evaluation.results()] == ["C"]
    assert len(list(evaluation.watch(progress=False))) > 3
    run = sync.runs.create("Hi", model=MODEL, agent="generate").wait(60)
    assert run.refresh() is run
    assert run.output() == "Default output from mockllm/model"
    assert sync.blobs.get(sync.blobs.put(b"body").hash) == b"body"


def test_an_iteration_that_is_left_ends(sync: Client) -> None:
    for piece in sync.models.stream(MODEL, "Hi"):
        assert piece.answer is None
        break
    with (
        sync.sandboxes.create(driver="local") as sandbox,
        sandbox.start("while true; do echo x; sleep 0.05; done") as p,
    ):
        for _ in p:
            break


def test_threads_share_a_client(sync: Client) -> None:
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda: answers.append(sync.models.generate(MODEL, "Hi").text)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8


def test_a_closed_client_says_so_and_leaves_no_thread(server: Server) -> None:
    client = Client(data_dir=server.data)
    client.models.generate(MODEL, "Hi")
    client.close()
    client.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "evalfleet"]
    with pytest.raises(RuntimeError, match="closed"):
        client.evals.list()


def test_a_client_that_finds_no_server_leaves_no_thread(tmp_path: Path) -> None:
    with pytest.raises(exceptions.ServerUnreachable), Client(data_dir=tmp_path):
        pass
    assert not [thread for thread in threading.enumerate() if thread.name == "evalfleet"]


def test_a_program_that_leaves_its_client_open_ends(server: Server) -> None:
    program = """
import sys
from evalfleet import Client
client = Client(data_dir=sys.argv[1])
pieces = client.models.stream("mockllm/model", "Hi")
next(pieces)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, str(server.data)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=PATIENCE,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_closing_a_client_ends_the_calls_of_other_threads() -> None:
    client = Client(f"127.0.0.1:{free_port()}", token="x", patience=600)
    said: list[str] = []

    def call() -> None:
        try:
            client.evals.list()
        except RuntimeError as closed:
            said.append(str(closed))

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    while not client._twin._connection._channels:
        time.sleep(0.01)
    client.close()
    caller.join(PATIENCE)
    assert len(said) == 1
    assert "closed" in said[0]


def test_an_iteration_that_the_loop_collects_as_garbage_ends(sync: Client) -> None:
    pieces = [sync.models.stream(MODEL, "Hi")]
    next(pieces[0])

    async def collect() -> None:
        pieces.clear()

    asyncio.run_coroutine_threadsafe(collect(), sync._loop._loop).result(PATIENCE)


@pytest.mark.parametrize("iterated", [False, True], ids=["exec", "start"])
def test_an_interrupt_cancels_the_call_and_stays_an_interrupt(sync: Client, iterated: bool) -> None:
    with sync.sandboxes.create(driver="local") as sandbox:

        def interrupt() -> None:
            sandbox.exec("while ! test -s pid; do sleep 0.05; done")
            os.kill(os.getpid(), signal.SIGINT)

        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        command = "echo $$ > pid; exec sleep 600"
        if iterated:
            with pytest.raises(KeyboardInterrupt), sandbox.start(command) as process:
                list(process)
        else:
            with pytest.raises(KeyboardInterrupt):
                sandbox.exec(command)
        interrupter.join()
        assert sandbox.exec("while kill -0 $(cat pid) 2>/dev/null; do sleep 0.05; done", timeout=60).ok


def test_what_an_interrupted_call_has_made_already_ends(sync: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(self: AsyncSandbox, command: str) -> AsyncProcess:
        process = await self.start(command)
        await self.exec("while ! test -s pid; do sleep 0.05; done")
        os.kill(os.getpid(), signal.SIGINT)
        return process

    monkeypatch.setattr(blocking.Sandbox, "start", blocking.owning(blocking.Process, interrupted))
    with sync.sandboxes.create(driver="local") as sandbox:
        with pytest.raises(KeyboardInterrupt):
            sandbox.start("echo $$ > pid; exec sleep 600")
        assert sandbox.exec("while kill -0 $(cat pid) 2>/dev/null; do sleep 0.05; done", timeout=60).ok


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_client_refuses_to_work_after_a_fork(sync: Client) -> None:
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            sync.evals.list()
            os.write(write, b"it works")
        except RuntimeError as refused:
            os.write(write, str(refused).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as said:
        assert b"after the fork" in said.read()
