"""What goes wrong, and the exception for it."""

import asyncio
import json
import os
import signal
import sys
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from conftest import PROGRAM, Server, free_port, until
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from evalfleet import AsyncClient, AsyncEval, EvalfleetError, discovery, exceptions, waiting
from evalfleet._error import from_rpc
from evalfleet.agent.v1 import eval_pb2, eval_service_pb2, eval_service_pb2_grpc
from evalfleet.connection import Connection, Stubs
from evalfleet.discovery import Place
from evalfleet.errors.v1.error_reason_pb2 import ErrorReason
from evalfleet.model.v1.message_pb2 import ModelCall


def test_every_reason_has_an_exception() -> None:
    named = {kind.reason for kind in EvalfleetError.__subclasses__()} - {exceptions.ServerUntrusted.reason}
    assert named == {
        name.removeprefix("ERROR_REASON_")
        for name in ErrorReason.DESCRIPTOR.values_by_name
        if not name.endswith("UNSPECIFIED")
    }
    assert exceptions.ServiceUnavailable.again == "yes"
    assert exceptions.SandboxQuota.again == "yes, not begun"
    assert exceptions.SandboxLost.again == "no"


def test_details_become_members() -> None:
    status = status_pb2.Status()
    details = [
        error_details_pb2.ErrorInfo(reason="SANDBOX_QUOTA", domain="evalfleet.dev", metadata={"quota": "disk"}),
        error_details_pb2.BadRequest(field_violations=[{"field": "spec.files", "description": "too large"}]),
        error_details_pb2.RetryInfo(retry_delay={"seconds": 2, "nanos": 500_000_000}),
        ModelCall(time=1.5),
    ]
    for detail in details:
        status.details.add().Pack(detail)
    trailing = aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
    failure = from_rpc(aio.AioRpcError(grpc.StatusCode.RESOURCE_EXHAUSTED, aio.Metadata(), trailing, "full"))
    assert isinstance(failure, exceptions.SandboxQuota)
    assert str(failure) == "SANDBOX_QUOTA: full"
    assert failure.facts == {"quota": "disk"}
    assert failure.fields == {"spec.files": "too large"}
    assert failure.retry_after == 2.5
    (detail,) = failure.details
    assert ModelCall.FromString(detail.value) == ModelCall(time=1.5)
    assert failure.code is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("details", [b"\xff\xff", b""])
def test_a_failure_without_our_details_is_known_by_its_status(details: bytes) -> None:
    trailing = aio.Metadata(("grpc-status-details-bin", details))
    failure = from_rpc(aio.AioRpcError(grpc.StatusCode.ABORTED, aio.Metadata(), trailing, "odd"))
    assert type(failure) is EvalfleetError
    assert (failure.reason, failure.code) == ("", grpc.StatusCode.ABORTED)


def test_a_reason_of_a_later_version_is_known_by_its_name() -> None:
    status = status_pb2.Status()
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="BRAND_NEW", domain="evalfleet.dev"))
    trailing = aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
    failure = from_rpc(aio.AioRpcError(grpc.StatusCode.ABORTED, aio.Metadata(), trailing, "odd"))
    assert (type(failure), failure.reason) == (EvalfleetError, "BRAND_NEW")


async def test_a_server_that_is_slow_to_accept_is_no_server_that_is_away(server: Server) -> None:
    connections = []

    async def through(near: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1)  # As a network or a machine that is busy.
        far, ask = await asyncio.open_connection(*server.address.split(":"))
        connections.append(asyncio.gather(copy(near, ask), copy(far, answer)))

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while piece := await source.read(1 << 16):
            target.write(piece)
        target.close()
        await target.wait_closed()

    async with await asyncio.start_server(through, "127.0.0.1") as slow:
        host, port = slow.sockets[0].getsockname()
        async with AsyncClient(f"{host}:{port}", token_file=server.data / "token", patience=0.1) as client:
            await client.sandboxes.list()
        await asyncio.gather(*connections)


async def test_a_wrong_token(server: Server, tmp_path: Path) -> None:
    async with AsyncClient(server.address, token="wrong" * 10) as client:
        with pytest.raises(exceptions.TokenInvalid):
            await client.evals.list()
    loose = tmp_path / "token"
    loose.write_text(server.token)
    loose.chmod(0o644)
    with pytest.raises(exceptions.TokenInvalid, match="chmod 600"):
        await AsyncClient(server.address, token_file=loose).server()
    with pytest.raises(exceptions.TokenInvalid, match="cannot be read"):
        await AsyncClient(server.address, token_file=tmp_path / "none").server()


async def test_no_server(tmp_path: Path) -> None:
    with pytest.raises(exceptions.ServerUnreachable, match="evalfleet serve"):
        await AsyncClient(data_dir=tmp_path).server()
    address = f"127.0.0.1:{free_port()}"
    async with AsyncClient(address, token="x", patience=0.3) as client:
        with pytest.raises(exceptions.ServerUnreachable, match=address) as away:
            await client.evals.list()
    assert away.value.reason == "SERVICE_UNAVAILABLE"


async def test_a_connection_may_take_its_time(server: Server) -> None:
    """As one to another continent does, with TLS."""
    host, _, port = server.address.rpartition(":")
    relays: set[asyncio.Task[None]] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.5)
        inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
        for source, target in ((reader, inner_writer), (inner_reader, writer)):
            relays.add(asyncio.create_task(relay(source, target)))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as far:
        address = f"127.0.0.1:{far.sockets[0].getsockname()[1]}"
        async with AsyncClient(address, token=server.token, patience=0) as client:
            assert (await client.info()).version
        await asyncio.gather(*relays)


@pytest.mark.parametrize(
    "address",
    ["localhost", "localhost:", ":7460", "http://127.0.0.1:7460", "127.0.0.1:7460/", "127.0.0.1:x", "[::1", "h:65536"],
)
async def test_an_address_that_cannot_be_one(address: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        await AsyncClient(address, token="x").server()


@pytest.mark.parametrize("address", ["127.0.0.1:7460", "[::1]:7460", "host.example:1"])
def test_an_address_that_can_be_one(address: str) -> None:
    assert Place(address, token="x").find({}).address == address


@pytest.mark.parametrize("token", ["se\ncret", "secr\u00e9t", "se\x01cret"])
async def test_a_token_that_cannot_be_one(server: Server, token: str) -> None:
    with pytest.raises(exceptions.TokenInvalid, match="token file") as refused:
        await AsyncClient(server.address, token=token).evals.list()
    assert token not in str(refused.value)


async def test_a_token_is_not_shown(server: Server) -> None:
    async with AsyncClient(server.address, token=server.token + "\n") as client:
        await client.runs.list()
        shown = repr(client), repr(client._connection._place), repr(await client._connection.server())
    assert server.token not in "".join(shown)


async def test_a_server_of_another_version() -> None:
    other = grpc.server(futures.ThreadPoolExecutor(1))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    try:
        async with AsyncClient(f"127.0.0.1:{port}", token="x") as client:
            with pytest.raises(exceptions.NotBuiltYet, match="another version"):
                await client.evals.list()
    finally:
        other.stop(None).wait()


class Silent(eval_service_pb2_grpc.EvalServiceServicer):
    """A server that accepts calls and sends nothing until `release`."""

    def __init__(self) -> None:
        self.watches = 0
        self.called = asyncio.Event()
        self.release = asyncio.Event()

    async def GetEval(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.called.set()
        await self.release.wait()
        return eval_pb2.Eval()

    async def WatchEval(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.watches += 1
        self.called.set()
        await self.release.wait()
        yield eval_service_pb2.WatchEvalResponse(cursor="1", progress=eval_pb2.Eval())


async def test_a_server_that_falls_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    silent, other = Silent(), aio.server()  # type: ignore[abstract]
    eval_service_pb2_grpc.add_EvalServiceServicer_to_server(silent, other)
    port = other.add_insecure_port("127.0.0.1:0")
    await other.start()
    try:
        async with AsyncClient(f"127.0.0.1:{port}", token="x") as client:
            request = eval_service_pb2.WatchEvalRequest(name="projects/default/evals/e")
            made = []

            def reopen(stubs: Stubs) -> Any:
                made.append(stubs.evals.WatchEval(request))
                return made[-1]

            with pytest.raises(exceptions.ServerUnreachable, match="does not answer them"):
                await anext(client._connection.follow(reopen, quiet=0.1))
        assert len(made) == 2
    finally:
        await other.stop(None)


async def test_calls_of_a_client_that_is_closed_are_not_cancelled() -> None:
    silent, other = Silent(), aio.server()  # type: ignore[abstract]
    eval_service_pb2_grpc.add_EvalServiceServicer_to_server(silent, other)
    port = other.add_insecure_port("127.0.0.1:0")
    await other.start()
    try:
        client = AsyncClient(f"127.0.0.1:{port}", token="x")
        found = AsyncEval(client._connection, eval_pb2.Eval(name="projects/default/evals/e"))
        watch = asyncio.ensure_future(anext(found.watch()))

        async def watched() -> bool:
            return silent.watches == 1

        await until(watched)
        await client.close()
        with pytest.raises(RuntimeError, match="closed"):
            await watch
    finally:
        await other.stop(None)


async def test_a_server_at_another_address_cuts_no_calls(tmp_path: Path) -> None:
    """Calls that still use the old connection end by themselves."""
    silent, other = Silent(), aio.server()  # type: ignore[abstract]
    eval_service_pb2_grpc.add_EvalServiceServicer_to_server(silent, other)
    ports = [other.add_insecure_port("127.0.0.1:0") for _ in range(2)]
    await other.start()
    (tmp_path / "token").write_text("x")
    (tmp_path / "token").chmod(0o600)
    lock = tmp_path / "lock"
    lock.write_text(json.dumps({"address": f"127.0.0.1:{ports[0]}", "pid": os.getpid()}))
    try:
        async with AsyncClient(data_dir=tmp_path) as client:
            found = AsyncEval(client._connection, eval_pb2.Eval(name="projects/default/evals/e"))
            watch = asyncio.ensure_future(anext(found.watch()))

            async def watched() -> bool:
                return silent.watches == 1

            await until(watched)
            lock.write_text(json.dumps({"address": f"127.0.0.1:{ports[1]}", "pid": os.getpid()}))
            await client._connection.look_again()
            silent.release.set()
            assert (await watch).cursor == "1"
    finally:
        await other.stop(None)


@pytest.mark.parametrize("of", ["call", "stream", "call with a time limit"])
async def test_a_cancellation_passes_a_call_as_it_came(of: str) -> None:
    silent, other = Silent(), aio.server()  # type: ignore[abstract]
    eval_service_pb2_grpc.add_EvalServiceServicer_to_server(silent, other)
    port = other.add_insecure_port("127.0.0.1:0")
    await other.start()
    came: list[tuple[Any, ...]] = []

    async def work(connection: Connection) -> None:
        try:
            if of == "stream":
                request = eval_service_pb2.WatchEvalRequest(name="projects/default/evals/e")
                await anext(connection.follow(lambda stubs: stubs.evals.WatchEval(request)))
            else:
                get = eval_service_pb2.GetEvalRequest(name="projects/default/evals/e")
                timeout = None if of == "call" else 600
                await connection.call(lambda stubs: stubs.evals.GetEval, get, timeout=timeout)
        except asyncio.CancelledError as cancelled:
            came.append(cancelled.args)
            raise

    try:
        async with AsyncClient(f"127.0.0.1:{port}", token="x") as client:
            task = asyncio.create_task(work(client._connection))
            await silent.called.wait()
            task.cancel("by the caller")
            with pytest.raises(asyncio.CancelledError):
                await task
        assert came == [("by the caller",)]
    finally:
        await other.stop(None)


async def test_a_cancellation_that_comes_with_the_result_is_not_lost() -> None:
    work: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(waiting.within(600, work))
    await asyncio.sleep(0)  # It waits.
    work.set_result(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_work_has_ended_when_its_time_is_over() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    with pytest.raises(asyncio.TimeoutError):
        await waiting.within(0, work())
    assert ended.is_set()


async def test_a_sandbox_that_dies(mortal: Server) -> None:
    async with AsyncClient(data_dir=mortal.data) as client:
        sandbox = await client.sandboxes.create(driver="local")
        doomed = asyncio.create_task(sandbox.exec("echo $$ > pid; exec sleep 600"))
        await sandbox.exec("while ! test -s pid; do sleep 0.05; done")
        for task in Path(f"/proc/{mortal.pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
        with pytest.raises(exceptions.SandboxLost) as lost:
            await doomed
        assert lost.value.facts["sandbox"] == sandbox.name


async def test_a_closed_client_says_so(server: Server) -> None:
    client = AsyncClient(data_dir=server.data)
    await client.close()
    with pytest.raises(RuntimeError, match="closed"):
        await client.evals.list()


def test_a_client_of_another_event_loop_says_so(server: Server) -> None:
    client = AsyncClient(data_dir=server.data)
    with pytest.raises(RuntimeError, match="stubs"):
        client.metadata()
    asyncio.run(client.server())
    with pytest.raises(RuntimeError, match="another event loop"):
        asyncio.run(client.server())


def test_where_a_server_is_looked_for(server: Server, tmp_path: Path) -> None:
    home = {"XDG_DATA_HOME": str(tmp_path)}
    assert Place().folder(home) == tmp_path / "evalfleet"
    assert Place().folder({"XDG_DATA_HOME": "relative"}) == Path.home() / ".local" / "share" / "evalfleet"
    assert Place().folder({**home, "EVALFLEET_DATA_DIR": str(server.data)}) == server.data
    found = Place().find({"EVALFLEET_DATA_DIR": str(server.data)})
    assert (found.address, found.token) == (server.address, server.token)
    assert found.version
    env = {**home, "EVALFLEET_SERVER": "there:1", "EVALFLEET_TOKEN": "given"}
    assert Place().find(env).token == "given"
    assert Place("here:2").find(env).address == "here:2"
    assert (
        Place().find({**env, "EVALFLEET_TOKEN": "", "EVALFLEET_TOKEN_FILE": str(server.data / "token")}).token
        == server.token
    )


async def test_a_server_that_starts_is_waited_for(server: Server, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(server.token)
    (tmp_path / "token").chmod(0o600)
    lock = tmp_path / "lock"
    lock.write_text(json.dumps({"address": "", "pid": os.getpid()}))
    client = AsyncClient(data_dir=tmp_path)
    finding = asyncio.create_task(client.server())
    await asyncio.sleep(0)
    lock.write_text(json.dumps({"address": server.address, "pid": os.getpid()}))
    assert await finding == server.address
    await client.close()


async def test_one_of_many_clients_starts_the_server(server: Server) -> None:
    clients = [AsyncClient(data_dir=server.root / "many", start=PROGRAM) for _ in range(3)]
    try:
        assert len(set(await asyncio.gather(*(client.server() for client in clients)))) == 1
    finally:
        for client in clients:
            await client.close()


async def test_a_server_is_started_and_stopped_with_its_client(server: Server, tmp_path: Path) -> None:
    data = server.root / "started"
    async with AsyncClient(data_dir=data, start=PROGRAM) as client:
        assert await client.evals.list() == []
        async with AsyncClient(data_dir=data, start=PROGRAM) as second:  # It finds the first one's.
            assert await second.server() == await client.server()
        address = await client.server()
    async with AsyncClient(address, token="x", patience=0.1) as late:
        with pytest.raises(exceptions.ServerUnreachable):
            await late.evals.list()
    with pytest.raises(exceptions.ServerUnreachable, match="ended before"):
        await AsyncClient(data_dir=tmp_path, start=sys.executable).server()


async def test_a_program_that_begins_no_server_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "silent"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    monkeypatch.setattr(discovery, "START_SECONDS", 0.1)
    with pytest.raises(exceptions.ServerUnreachable, match=r"took no calls within 0\.1 s"):
        await AsyncClient(data_dir=tmp_path, start=str(program)).server()
