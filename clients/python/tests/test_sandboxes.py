"""Sandboxes."""

import asyncio
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Server

from evalfleet import AsyncClient, AsyncSandbox, blobs, exceptions, new_key
from evalfleet.sandbox.v1 import sandbox_pb2
from evalfleet.sandbox.v1 import sandbox_service_pb2 as pb
from evalfleet.sandboxes import abandon


@pytest.fixture
async def sandbox(client: AsyncClient) -> AsyncSandbox:
    """The sandbox is deleted with the data of its server."""
    return await client.sandboxes.create(driver="local", files={"a.txt": "hello", "b.bin": b"\x00\xff"})


async def test_a_command_and_its_result(sandbox: AsyncSandbox) -> None:
    result = await sandbox.exec("cat; pwd; echo $X; echo oops >&2; exit 3", input="in\n", env={"X": "y"})
    assert result.exit_code == 3
    assert not result.ok
    assert result.text.splitlines() == ["in", sandbox.workdir, "y"]
    assert result.error_text == "oops\n"
    assert not result.truncated
    assert (await sandbox.exec(["cat", "b.bin"])).stdout == b"\x00\xff"
    assert (await sandbox.exec(["nosuch"])).exit_code == 127


async def test_a_command_that_takes_too_long(sandbox: AsyncSandbox) -> None:
    result = await sandbox.exec("echo before; sleep 600", timeout=0.3)
    assert result.timed_out
    assert not result.ok
    assert result.text == "before\n"


async def test_output_over_a_message_is_complete_and_over_its_limit_is_cut(sandbox: AsyncSandbox) -> None:
    whole = await sandbox.exec(["seq", "1000000"])
    assert whole.text.endswith("\n999999\n1000000\n")
    assert whole.stdout == "".join(f"{n}\n" for n in range(1, 1000001)).encode()
    assert not whole.truncated
    cut = await sandbox.exec(["seq", "1000000"], max_output_bytes=10_000)
    assert cut.truncated
    assert len(cut.stdout) == 10_000
    assert cut.text.startswith("1\n2\n")
    assert cut.text.endswith("\n1000000\n")


async def test_a_command_with_a_key_runs_once(sandbox: AsyncSandbox) -> None:
    key = new_key()
    first = await sandbox.exec("echo x >> ran; cat ran", key=key)
    again = await sandbox.exec("echo x >> ran; cat ran", key=key)
    assert first.text == again.text == "x\n"
    assert again.result.replayed


async def test_a_cancelled_task_kills_its_command(sandbox: AsyncSandbox) -> None:
    task = asyncio.create_task(sandbox.exec("echo $$ > pid; exec sleep 600"))
    await _exists(sandbox, "pid")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.gather(*sandbox._connection._later)
    gone = await sandbox.exec("while kill -0 $(cat pid) 2>/dev/null; do sleep 0.05; done", timeout=60)
    assert gone.ok


async def test_a_process_streams_its_output_and_takes_input(sandbox: AsyncSandbox) -> None:
    async with await sandbox.start(
        "while read x; do echo got $x; done; echo end >&2; exit 4", open_input=True
    ) as process:
        assert process.pid > 0
        output = aiter(process)
        for word in ("one", "two"):
            await process.write(word + "\n")
            assert (await anext(output)).text == f"got {word}\n"
        await process.write("", eof=True)
        last = [piece async for piece in output]
        assert [(piece.stream, piece.text) for piece in last] == [("stderr", "end\n")]
        assert (await process.wait()).exit_code == 4


async def test_leaving_a_process_kills_it(sandbox: AsyncSandbox) -> None:
    async with await sandbox.start("echo $$ > pid; exec sleep 600"):
        await _exists(sandbox, "pid")
    assert (await sandbox.exec("while kill -0 $(cat pid) 2>/dev/null; do sleep 0.05; done", timeout=60)).ok


async def test_leaving_a_process_kills_it_while_another_task_reads(sandbox: AsyncSandbox) -> None:
    async with await sandbox.start("echo $$ > pid; exec sleep 600") as process:
        reader = asyncio.create_task(process.wait())
        await _exists(sandbox, "pid")
    assert (await reader).result.cancelled
    assert (await sandbox.exec("while kill -0 $(cat pid) 2>/dev/null; do sleep 0.05; done", timeout=60)).ok


async def test_a_block_that_is_left_by_cancellation_deletes_its_sandbox(client: AsyncClient) -> None:
    inside: asyncio.Queue[AsyncSandbox] = asyncio.Queue()

    async def block() -> None:
        async with await client.sandboxes.create(driver="local") as sandbox:
            inside.put_nowait(sandbox)
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    sandbox = await inside.get()
    task.cancel()
    await asyncio.sleep(0)  # It has begun to delete.
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.gather(*client._connection._later)
    with pytest.raises(exceptions.SandboxTerminated):
        await sandbox.exec("true")


async def test_a_creation_that_is_abandoned_leaves_no_sandbox_when_it_was_done_already(client: AsyncClient) -> None:
    connection = client._connection
    spec = sandbox_pb2.SandboxSpec()
    creation = pb.CreateSandboxRequest(parent=connection.parent, spec=spec, request_id=new_key())
    made = await connection.call(lambda stubs: stubs.sandboxes.CreateSandbox, creation)
    assert made.name in [sandbox.name for sandbox in await client.sandboxes.list()]
    await abandon(connection, creation)
    assert made.name not in [sandbox.name for sandbox in await client.sandboxes.list()]


async def test_a_file_that_cannot_be_read_is_the_error_of_its_upload(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0

    def chunks(content: bytes) -> Iterator[bytes]:
        nonlocal reads
        reads += 1
        if reads == 2:  # The first one is for the hash.
            raise OSError("the disk fails")
        yield content

    monkeypatch.setattr(blobs, "chunks", chunks)
    with pytest.raises(OSError, match="the disk fails"):
        await client.blobs.put(b"x")


async def test_closing_the_client_ends_what_is_under_way(server: Server, client: AsyncClient) -> None:
    own = AsyncClient(data_dir=server.data)
    sandbox = await own.sandboxes.create(driver="local")
    task = asyncio.create_task(sandbox.exec("echo $$ > pid; exec sleep 600"))
    other = await client.sandboxes.get(sandbox.name)
    await _exists(other, "pid")
    await own.close()
    (ended,) = await asyncio.gather(task, return_exceptions=True)  # It is answered, or cut off.
    assert not isinstance(ended, asyncio.CancelledError)
    assert (await other.exec("while kill -0 $(cat pid) 2>/dev/null; do sleep 0.05; done", timeout=60)).ok


async def test_files_of_any_size(sandbox: AsyncSandbox) -> None:
    assert await sandbox.read_text("a.txt") == "hello"
    for size in (0, 3, 9_000_000):
        content = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        await sandbox.write("deep/down.bin", content, mode=0o700)
        assert await sandbox.read("deep/down.bin") == content
    assert (await sandbox.exec(["stat", "-c", "%a", "deep/down.bin"])).text == "700\n"
    assert [file.path for file in await sandbox.list_files("deep")] == ["down.bin"]
    await sandbox.remove("deep", recursive=True)
    with pytest.raises(exceptions.FileNotFound) as missing:
        await sandbox.read("deep/down.bin")
    assert missing.value.facts["path"] == "deep/down.bin"


async def test_a_file_over_its_limit(sandbox: AsyncSandbox) -> None:
    await sandbox.write("big", b"x" * 5_000)
    with pytest.raises(exceptions.OutputLimit) as refused:
        await sandbox.read("big", max_bytes=1_000)
    assert refused.value.facts["path"] == "big"


async def test_folders_are_copied_both_ways(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "one.txt").write_text("1")
    (source / "sub" / "run.sh").write_text("#!/bin/sh\necho ran")
    (source / "sub" / "run.sh").chmod(0o755)
    await sandbox.upload(source, "work")
    assert (await sandbox.exec(["work/sub/run.sh"])).text == "ran\n"
    await sandbox.exec("echo 2 > work/two.txt; ln -s /etc/passwd work/link")
    await sandbox.download("work", tmp_path / "back")
    found = {str(path.relative_to(tmp_path / "back")) for path in (tmp_path / "back").rglob("*") if path.is_file()}
    assert found == {"one.txt", "two.txt", "sub/run.sh"}
    await sandbox.download("work/two.txt", tmp_path / "two.txt")
    assert (tmp_path / "two.txt").read_text() == "2\n"
    await sandbox.download("a.txt", tmp_path / "back")
    assert (tmp_path / "back" / "a.txt").read_text() == "hello"
    await sandbox.upload(tmp_path / "two.txt", "copied.txt")
    assert await sandbox.read_text("copied.txt") == "2\n"


async def test_a_sandbox_is_deleted_with_its_block(client: AsyncClient) -> None:
    async with await client.sandboxes.create(labels={"for": "test"}) as sandbox:
        assert sandbox.name in [found.name for found in await client.sandboxes.list()]
        assert (await client.sandboxes.get(sandbox.name.rpartition("/")[2])).name == sandbox.name
        assert (await client.sandboxes.get(sandbox.name)).info.spec.labels["for"] == "test"
    with pytest.raises(exceptions.SandboxTerminated) as ended:
        await sandbox.exec("true")
    assert ended.value.facts["sandbox"] == sandbox.name
    with pytest.raises(exceptions.SandboxTerminated):
        await sandbox.renew()


async def test_a_lease_is_renewed_while_its_client_lives(client: AsyncClient) -> None:
    async def end() -> float:
        found = await client.sandboxes.get(sandbox.name)
        return found.info.lease_expire_time.ToNanoseconds() / 1e9

    async with (
        await client.sandboxes.create(lease=1000) as longer,
        await client.sandboxes.create(lease=3) as sandbox,
    ):
        first = await end()
        while await end() < first + 3:
            longer.hold(fresh=True)  # Others that begin meanwhile delay no renewal.
            await sandbox.exec("sleep 0.1")


async def test_a_lease_that_began_earlier_is_renewed_at_once(client: AsyncClient) -> None:
    async with await client.sandboxes.create(lease=1000) as sandbox:
        found = await client.sandboxes.get(sandbox.name)
        found.hold()
        first = now = found.info.lease_expire_time.ToNanoseconds()
        while now == first:
            now = (await client.sandboxes.get(sandbox.name)).info.lease_expire_time.ToNanoseconds()


async def test_files_over_the_limit_of_a_read_and_folders_of_any_depth_are_copied(
    sandbox: AsyncSandbox, tmp_path: Path
) -> None:
    size = (100 << 20) + 1
    with (tmp_path / "big").open("wb") as big:
        big.truncate(size)
    deep = "/".join(str(level) for level in range(20))
    tracemalloc.start()
    try:
        await sandbox.upload(tmp_path / "big", "big")
        await sandbox.exec(f"mkdir -p top/{deep}; echo deep > top/{deep}/file; mkdir top/empty")
        await sandbox.download("big", tmp_path / "back")
        await sandbox.download("top", tmp_path / "top")
        assert tracemalloc.get_traced_memory()[1] < 30 << 20
    finally:
        tracemalloc.stop()
    assert (tmp_path / "back").stat().st_size == size
    assert (tmp_path / "top" / deep / "file").read_text() == "deep\n"
    assert (tmp_path / "top" / "empty").is_dir()


async def test_a_download_that_fails_leaves_what_was_there(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("old")
    with pytest.raises(exceptions.FileNotFound):
        await sandbox.download("nosuch", tmp_path / "kept")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_text() == "old"


async def test_a_set_up_that_fails_says_why(client: AsyncClient) -> None:
    with pytest.raises(exceptions.SandboxSetupFailed, match="no such thing") as failure:
        await client.sandboxes.create(setup="echo no such thing; exit 7")
    assert failure.value.facts["exitCode"] == "7"


async def test_a_sandbox_with_a_key_is_made_once(client: AsyncClient) -> None:
    key = new_key()
    first = await client.sandboxes.create(key=key)
    assert (await client.sandboxes.create(key=key)).name == first.name


async def test_drivers_say_what_they_isolate(client: AsyncClient) -> None:
    assert "local" in [driver.name for driver in await client.sandboxes.drivers()]


async def _exists(sandbox: AsyncSandbox, path: str) -> None:
    assert (await sandbox.exec(f"while ! test -s {path}; do sleep 0.05; done", timeout=60)).ok
