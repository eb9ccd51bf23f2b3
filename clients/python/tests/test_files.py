"""Files that are received."""

import asyncio
import json
import os
import tracemalloc
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from evalfleet import AsyncClient, AsyncEval, AsyncSandbox, EvalfleetError, files
from evalfleet.agent.v1 import eval_pb2, eval_service_pb2, eval_service_pb2_grpc
from evalfleet.sandbox.v1 import sandbox_pb2, sandbox_service_pb2, sandbox_service_pb2_grpc

MODEL = "mockllm/model"
Receive = Callable[[AsyncClient, Path], Any]


def test_a_file_is_replaced_at_the_end_of_the_block(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("old")
    with files.replacing(target) as first, files.replacing(target) as second:
        first.write(b"torn")
        first.restart()
        first.write(b"new")
        second.write(b"newer")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_a_block_that_fails_changes_nothing(tmp_path: Path) -> None:
    def receive() -> None:
        with files.replacing(tmp_path / "target") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        receive()
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_a_folder_is_named_by_the_block(tmp_path: Path) -> None:
    with files.replacing(tmp_path) as file:
        file.write(b"content")
        file.target = tmp_path / "named"
    assert (tmp_path / "named").read_bytes() == b"content"
    assert len(list(tmp_path.iterdir())) == 1


class Cutting(eval_service_pb2_grpc.EvalServiceServicer, sandbox_service_pb2_grpc.SandboxServiceServicer):
    """A server whose files break off after their first piece: with an error, or by silence."""

    def __init__(self) -> None:
        self.silent = False
        self.begun = asyncio.Event()

    async def _cut(self, context: Any) -> None:
        self.begun.set()
        if self.silent:
            await asyncio.Event().wait()
        await context.abort(grpc.StatusCode.DATA_LOSS, "cut")

    async def ExportEval(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        yield eval_service_pb2.ExportEvalResponse(file_name="log.eval", chunk=b"half")
        await self._cut(context)

    async def ListFiles(self, request: Any, context: Any) -> Any:  # noqa: N802
        return sandbox_service_pb2.ListFilesResponse(
            files=[sandbox_pb2.FileInfo(path="file", type=sandbox_pb2.FILE_TYPE_FILE, mode=0o644)]
        )

    async def DownloadFile(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        yield sandbox_service_pb2.DownloadFileResponse(chunk=b"half")
        await self._cut(context)


async def save_log(client: AsyncClient, folder: Path) -> None:
    found = AsyncEval(client._connection, eval_pb2.Eval(name="projects/default/evals/e"))
    await found.save_log(folder)


async def download(client: AsyncClient, folder: Path) -> None:
    sandbox = AsyncSandbox(client._connection, sandbox_pb2.Sandbox(name="projects/default/sandboxes/s"))
    await sandbox.download("folder", folder)


@pytest.mark.parametrize("cancelled", [False, True], ids=["cut", "cancelled"])
@pytest.mark.parametrize("receive", [save_log, download])
async def test_a_file_that_breaks_off_leaves_what_was_there(tmp_path: Path, receive: Receive, cancelled: bool) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "log.eval").write_text("old")
    cutting, other = Cutting(), aio.server()  # type: ignore[abstract]
    cutting.silent = cancelled
    eval_service_pb2_grpc.add_EvalServiceServicer_to_server(cutting, other)
    sandbox_service_pb2_grpc.add_SandboxServiceServicer_to_server(cutting, other)
    port = other.add_insecure_port("127.0.0.1:0")
    await other.start()
    try:
        async with AsyncClient(f"127.0.0.1:{port}", token="x") as client:
            task = asyncio.create_task(receive(client, tmp_path))
            await cutting.begun.wait()
            if cancelled:
                task.cancel()
            with pytest.raises(asyncio.CancelledError if cancelled else EvalfleetError):
                await task
    finally:
        await other.stop(None)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "old", "log.eval": "old"}


async def test_a_log_costs_no_memory(client: AsyncClient, tmp_path: Path) -> None:
    rows = [{"input": b64encode(os.urandom(1 << 20)).decode(), "target": "x"} for _ in range(8)]
    task = {"dataset": "rows.jsonl", "solver": "generate", "scorer": "includes"}
    content = "\n".join(json.dumps(row) for row in rows).encode()
    evaluation = await client.evals.create(task, model=MODEL, files={"rows.jsonl": content})
    assert (await evaluation.wait(120)).state == "succeeded"
    tracemalloc.start()
    try:
        log = await evaluation.save_log(tmp_path)
        size, most = log.stat().st_size, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > 12 << 20
    assert most < 4 << 20
