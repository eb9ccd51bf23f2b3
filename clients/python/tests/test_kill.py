"""The server is killed, as by a power cut, and started again: nothing is lost, and nothing happens twice."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from conftest import PATIENCE, Server, until
from grpc import aio

from evalfleet import AsyncClient, AsyncEval, AsyncSandbox, EvalfleetError, Piece, Worker, new_key
from evalfleet.model.v1.model_service_pb2 import AttachGenerateRequest

MODEL = "mockllm/model"


@pytest.fixture
async def client(mortal: Server) -> AsyncIterator[AsyncClient]:
    """A client of the server that is killed."""
    async with AsyncClient(data_dir=mortal.data, patience=PATIENCE) as made:
        yield made


async def restart(server: Server) -> None:
    server.kill()
    await asyncio.to_thread(server.start)


async def test_in_the_middle_of_a_watch(mortal: Server, client: AsyncClient) -> None:
    samples = [{"id": n, "input": f"Question {n}?", "target": "x"} for n in range(6)]
    slow = {"outputs": [{"contains": "Question", "output": {"text": "x", "delay_s": 0.3}}]}
    task = {"dataset": samples, "solver": "generate", "scorer": "includes", "max_samples": 1}
    evaluation = await client.evals.create(task, model=MODEL, model_args=slow)
    seen, kills = [], 0
    async for update in evaluation.watch():
        if update.HasField("event"):
            seen.append((update.event.seq, update.event.WhichOneof("kind")))
            if seen[-1][1] == "sample_finished" and kills < 2:
                kills += 1
                await restart(mortal)
    assert kills == 2
    numbers = [number for number, _ in seen]
    assert numbers == list(range(1, len(numbers) + 1))
    assert [kind for _, kind in seen].count("sample_finished") == 6
    assert evaluation.state == "succeeded"
    assert [row["score_includes"] for row in await evaluation.results()] == ["C"] * 6


async def test_in_the_middle_of_a_wait_and_back_at_another_address(mortal: Server, client: AsyncClient) -> None:
    slow = {"outputs": [{"contains": "Hi", "output": {"text": "x", "delay_s": 1}}]}
    task = {"dataset": [{"input": "Hi", "target": "x"}], "solver": "generate", "scorer": "includes"}
    evaluation = await client.evals.create(task, model=MODEL, model_args=slow)
    waiting = asyncio.create_task(evaluation.wait())
    await asyncio.sleep(0)
    mortal.kill()
    mortal.address = "127.0.0.1:0"
    await asyncio.to_thread(mortal.start)
    assert (await waiting).state == "succeeded"


async def test_in_the_middle_of_an_exec(mortal: Server, client: AsyncClient) -> None:
    sandbox = await client.sandboxes.create(driver="local")
    command = "echo x >> ran; while ! test -e go; do sleep 0.02; done; cat ran"
    running = asyncio.create_task(sandbox.exec(command, key=new_key()))
    without_key = asyncio.create_task(sandbox.exec(command.replace("ran", "ran2")))
    await _exists(sandbox, "ran")
    await _exists(sandbox, "ran2")
    await restart(mortal)
    await sandbox.write("go", b"")
    assert (await running).text == "x\n"
    assert (await without_key).text == "x\n"


async def test_in_the_middle_of_a_streamed_exec(mortal: Server, client: AsyncClient) -> None:
    sandbox = await client.sandboxes.create(driver="local")
    command = "for n in 1 2 3; do echo $n; while ! test -e go$n; do sleep 0.02; done; done; echo end >&2"
    async with await sandbox.start(command) as process:
        lines = []
        async for piece in process:
            lines.append((piece.stream, piece.text))
            if piece.stream == "stdout":
                if len(lines) == 2:
                    await restart(mortal)
                await sandbox.write(f"go{len(lines)}", b"")
        assert lines == [("stdout", "1\n"), ("stdout", "2\n"), ("stdout", "3\n"), ("stderr", "end\n")]
        assert (await process.wait()).exit_code == 0


async def test_in_the_middle_of_a_transfer(mortal: Server, client: AsyncClient) -> None:
    sandbox = await client.sandboxes.create(driver="local")
    content = bytes(range(256)) * 100_000
    writing = asyncio.create_task(sandbox.write("big", content))
    await asyncio.sleep(0)
    await restart(mortal)
    await writing
    reading = asyncio.create_task(sandbox.read("big"))
    await asyncio.sleep(0)
    await restart(mortal)
    assert await reading == content


async def test_in_the_middle_of_a_models_call(mortal: Server, client: AsyncClient) -> None:
    slow = {"outputs": [{"contains": "Hi", "output": {"text": "one two three four", "delay_s": 0.5}}]}
    key = new_key()
    calling = asyncio.create_task(client.models.generate(MODEL, "Hi", model_args=slow, key=key))
    stubs = await client.stubs()
    attach = AttachGenerateRequest(parent="projects/default", request_id=key)

    async def begun() -> bool:
        try:
            async for event in stubs.models.AttachGenerate(attach, metadata=client.metadata()):
                return event.HasField("started")
        except aio.AioRpcError:
            pass  # It is not known yet.
        return False

    await until(begun)
    await restart(mortal)
    answer = await calling
    assert answer.text == "one two three four"
    pieces: list[Piece] = []
    paced = {"outputs": [{"contains": "Hi", "output": {"text": "word " * 30, "chunk_delay_s": 0.05}}]}
    async for piece in client.models.stream(MODEL, "Hi", model_args=paced):
        if piece.restarted:
            pieces.clear()
        pieces.append(piece)
        if len(pieces) == 2 and not mortal.killed:
            mortal.killed = True
            await restart(mortal)
    assert "".join(piece.text for piece in pieces) == "word " * 30
    assert pieces[-1].answer is not None


async def test_in_the_middle_of_a_workers_call(mortal: Server, client: AsyncClient) -> None:
    calls: list[str] = []
    begun, go = asyncio.Event(), asyncio.Event()
    worker = Worker(client=client)

    @worker.tool(on_unknown="retry")
    async def square(n: int) -> int:
        """Squares a number.

        Args:
            n: The number.
        """
        calls.append(str(n))
        begun.set()
        await go.wait()
        return n * n

    serving = asyncio.create_task(worker.serve())
    evaluation = await _squares(client)
    await asyncio.wait_for(begun.wait(), PATIENCE)
    await restart(mortal)
    go.set()
    assert (await evaluation.wait(PATIENCE)).state == "succeeded"
    assert calls == ["12"]
    assert [row["score_includes"] for row in await evaluation.results()] == ["C"]
    worker.drain()
    await asyncio.wait_for(serving, PATIENCE)


async def test_a_worker_that_drains_while_the_server_is_away_delivers_its_result_first(
    mortal: Server, client: AsyncClient
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    worker = Worker(client=client)

    @worker.tool(on_unknown="retry")
    async def square(n: int) -> int:
        """Squares a number.

        Args:
            n: The number.
        """
        begun.set()
        await go.wait()
        return n * n

    serving = asyncio.create_task(worker.serve())
    evaluation = await _squares(client)
    await asyncio.wait_for(begun.wait(), PATIENCE)
    mortal.kill()
    worker.drain()
    go.set()
    await asyncio.to_thread(mortal.start)
    await asyncio.wait_for(serving, PATIENCE)
    assert (await evaluation.wait(PATIENCE)).state == "succeeded"


WORKER = """
import sys, time
from pathlib import Path
from evalfleet import Worker

worker = Worker(results="results.db")

@worker.tool(on_unknown="retry")
def square(n: int) -> int:
    '''Squares a number.

    Args:
        n: The number.
    '''
    with open("calls", "a") as calls:
        print(n, file=calls)
    while not Path("go").exists():
        time.sleep(0.02)
    return n * n

worker.run()
"""


async def test_a_worker_is_killed_after_its_work_and_sends_the_result_when_it_is_back(
    mortal: Server, client: AsyncClient, tmp_path: Path
) -> None:
    """The result is in the worker's file while the server is away: it is sent, and the work is not repeated."""
    env = {"EVALFLEET_DATA_DIR": str(mortal.data), "PYTHONPATH": ":".join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}

    @asynccontextmanager
    async def worker() -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER, cwd=tmp_path, env=env)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async with worker():
        evaluation = await _squares(client)
        while not (tmp_path / "calls").exists():
            await asyncio.sleep(0.02)
        mortal.kill()
        (tmp_path / "go").touch()
        while not _kept(tmp_path / "results.db"):
            await asyncio.sleep(0.02)
    await asyncio.to_thread(mortal.start)
    async with worker() as process:
        assert (await evaluation.wait(PATIENCE)).state == "succeeded"
        assert (tmp_path / "calls").read_text() == "12\n"
        process.terminate()
        assert await process.wait() == 0


async def test_a_second_signal_ends_a_worker_whose_function_does_not_return(
    mortal: Server, client: AsyncClient, tmp_path: Path
) -> None:
    env = {"EVALFLEET_DATA_DIR": str(mortal.data), "PYTHONPATH": ":".join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER, cwd=tmp_path, env=env)
    try:
        await _squares(client)
        while not (tmp_path / "calls").exists():
            await asyncio.sleep(0.02)

        async def ended() -> bool:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            return process.returncode is not None

        await until(ended)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _kept(path: Path) -> bool:
    """Whether the result is on disk for good. SQLite does not tell: the file belongs to the worker.

    While the journal has a header, what it is about is undone when the file is opened again
    (https://sqlite.org/fileformat2.html#the_rollback_journal).
    """
    written = b'{"text": 144}' in path.read_bytes()
    journal = path.with_name(f"{path.name}-journal")
    return written and not (journal.exists() and journal.read_bytes()[:1] == b"\xd9")


async def _squares(client: AsyncClient) -> AsyncEval:
    """An evaluation whose model calls the tool square."""
    steps = [
        {"tool_calls": [{"function": "square", "arguments": {"n": 12}}]},
        {"tool_calls": [{"function": "submit", "arguments": {"answer": "144"}}]},
    ]
    script = {"outputs": [{"sample": "twelve", "outputs": steps}]}
    task = {
        "dataset": [{"id": "twelve", "input": "What is 12 squared?", "target": "144"}],
        "solver": {"react": {"tools": ["square"]}},
        "scorer": "includes",
    }

    async def create() -> AsyncEval:
        while True:
            try:
                return await client.evals.create(task, model=MODEL, model_args=script)
            except EvalfleetError as failure:
                if "square" not in str(failure):
                    raise
                await asyncio.sleep(0.02)  # The worker is not registered yet.

    return await asyncio.wait_for(create(), PATIENCE)


async def _exists(sandbox: AsyncSandbox, path: str) -> None:
    assert (await sandbox.exec(f"while ! test -s {path}; do sleep 0.02; done", timeout=60)).ok
