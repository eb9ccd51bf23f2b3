"""The connection to a server: authentication, repetition of calls, and errors by reason."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.message import Message
from grpc import aio

from evalfleet import offload, waiting
from evalfleet._error import EvalfleetError, from_rpc
from evalfleet.agent.v1 import admin_service_pb2, eval_service_pb2, run_service_pb2
from evalfleet.agent.v1.admin_service_pb2_grpc import AdminServiceStub
from evalfleet.agent.v1.eval_service_pb2_grpc import EvalServiceStub
from evalfleet.agent.v1.run_service_pb2_grpc import RunServiceStub
from evalfleet.blob.v1 import blob_service_pb2
from evalfleet.blob.v1.blob_service_pb2_grpc import BlobServiceStub
from evalfleet.content.v1.content_pb2 import BlobRef
from evalfleet.discovery import Place, Server, StartedServer
from evalfleet.exceptions import DeadlineExceeded, NotBuiltYet, ServerUnreachable, ServerUntrusted
from evalfleet.leases import Leases
from evalfleet.model.v1 import batch_service_pb2, model_service_pb2
from evalfleet.model.v1.batch_service_pb2_grpc import BatchServiceStub
from evalfleet.model.v1.model_service_pb2_grpc import CacheServiceStub, LimitServiceStub, ModelServiceStub
from evalfleet.sandbox.v1 import sandbox_service_pb2
from evalfleet.sandbox.v1.sandbox_service_pb2_grpc import SandboxServiceStub
from evalfleet.tool.v1 import tool_service_pb2
from evalfleet.tool.v1.tool_service_pb2_grpc import ToolServiceStub
from evalfleet.worker.v1.worker_service_pb2_grpc import WorkerServiceStub

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)
Result = TypeVar("Result")
Item = TypeVar("Item", covariant=True)

MAX_MESSAGE_BYTES = 20 << 20
"""The transport's bound. It exceeds the server's (4 MiB), so that the server's error says which bound a message
exceeds."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 3.0
"""Seconds between attempts of a call; each pause is twice the one before."""
CLOSE_SECONDS = 5.0
"""How long `close` waits for what is done in the background."""
GRACE_SECONDS = 5.0
"""How much longer than its time limit a call may take, so that the server, which knows more, reports the limit."""
SILENCE_SECONDS = 60.0
"""A stream that sends nothing for so long, not even one of the heartbeats that come every 15 s, is taken for lost."""

_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # The server of a machine that went away without a word is noticed.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # How long a connection may take to come about, however short the pause before the next attempt is.
    ("grpc.min_reconnect_backoff_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 3_000),
    # Each client has its own connection, so that closing one ends no other's.
    ("grpc.use_local_subchannel_pool", 1),
]

# What gRPC writes of a certificate without a trusted CA, one for another host, and a server without TLS.
_TLS_FAULTS = ("CERTIFICATE_VERIFY_FAILED", "Hostname Verification Check failed", "WRONG_VERSION_NUMBER")

_SERVICES = [
    service
    for file in (
        admin_service_pb2,
        batch_service_pb2,
        blob_service_pb2,
        eval_service_pb2,
        model_service_pb2,
        run_service_pb2,
        sandbox_service_pb2,
        tool_service_pb2,
    )
    for service in file.DESCRIPTOR.services_by_name.values()
]
# Requests of methods that may be called twice as well as once, as the protocol states.
_IDEMPOTENT = {
    method.input_type.full_name
    for service in _SERVICES
    for method in service.methods
    if method.GetOptions().idempotency_level != MethodOptions.IDEMPOTENCY_UNKNOWN
}


def repeatable(request: Message) -> bool:
    """Whether a call may be repeated after a lost connection: its method is idempotent, or it has a key."""
    return request.DESCRIPTOR.full_name in _IDEMPOTENT or bool(getattr(request, "request_id", ""))


class Stubs:
    """The generated stubs of the services that are built, for calls that the rest of the package does not wrap."""

    def __init__(self, channel: aio.Channel) -> None:
        self.admin = AdminServiceStub(channel)
        self.batches = BatchServiceStub(channel)
        self.blobs = BlobServiceStub(channel)
        self.cache = CacheServiceStub(channel)
        self.evals = EvalServiceStub(channel)
        self.limits = LimitServiceStub(channel)
        self.models = ModelServiceStub(channel)
        self.runs = RunServiceStub(channel)
        self.sandboxes = SandboxServiceStub(channel)
        self.tools = ToolServiceStub(channel)
        self.workers = WorkerServiceStub(channel)


class Stream(Protocol[Item]):
    """A call that is answered by a stream."""

    def __aiter__(self) -> AsyncIterator[Item]: ...

    def cancel(self) -> bool:
        """Ends it."""
        ...


class Connection:
    """A connection to a server, which is found and dialled on first use. It belongs to one event loop.

    Calls that fail because the server is away are repeated for `patience` seconds, if the protocol makes that safe:
    the method is idempotent, or the call has a key. A server that was found by its data directory is looked up again
    meanwhile, as it may be back at another address.
    """

    def __init__(
        self,
        place: Place,
        *,
        project: str,
        patience: float,
        start: bool | str,
        credentials: grpc.ChannelCredentials | None,
    ) -> None:
        self.parent = f"projects/{project}"
        self.patience = patience
        self.leases = Leases(self)
        self._place = place
        self._start = start
        self._credentials = credentials
        self._owner: tuple[int, asyncio.AbstractEventLoop] | None = None
        self._lock = asyncio.Lock()
        self._server: Server | None = None
        self._started: StartedServer | None = None
        self._channels: list[aio.Channel] = []
        self._stubs: Stubs | None = None
        self._later: set[asyncio.Task[None]] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._effects: dict[object, Callable[[], Coroutine[Any, Any, None]]] = {}
        self._closed = False

    def name(self, collection: str, name: str) -> str:
        """The whole name of a resource of the project, which may be given as its last part."""
        return name if "/" in name else f"{self.parent}/{collection}/{name}"

    async def server(self) -> Server:
        """The server, which is started if there is none and the client was made with `start`."""
        await self.stubs()
        assert self._server is not None
        return self._server

    async def stubs(self) -> Stubs:
        """The generated stubs over this connection. Their calls need `metadata()`, and raise errors of gRPC."""
        owner = os.getpid(), asyncio.get_running_loop()
        self._owner = self._owner or owner
        if self._owner != owner:
            raise RuntimeError("this client is of another event loop or process; make one for each")
        async with self._lock:
            if self._closed:
                raise RuntimeError("the client is closed")
            if self._stubs is None:
                self._dial(await self._find())
            assert self._stubs is not None
            return self._stubs

    def metadata(self) -> list[tuple[str, str]]:
        """What every call sends."""
        if self._server is None:
            raise RuntimeError("the client is not connected yet; await stubs() first")
        return [("authorization", f"Bearer {self._server.token}")]

    async def _find(self) -> Server:
        try:
            return await self._find_running()
        except ServerUnreachable:
            if not self._start:
                raise
        program = self._start if isinstance(self._start, str) else None
        try:
            self._started = await StartedServer.start(self._place, program)
        except ServerUnreachable as failure:
            try:
                return await self._find_running()  # Another client was faster.
            except ServerUnreachable:
                raise failure from None
        return self._place.find()

    async def _find_running(self) -> Server:
        """The server that runs, after its start if it starts."""
        attempts = 0
        while self._place.starting() and attempts * FIRST_PAUSE < self.patience and not self._closed:
            attempts += 1
            await asyncio.sleep(FIRST_PAUSE)
        return self._place.find()

    def _dial(self, server: Server) -> None:
        if self._credentials is None:
            channel = aio.insecure_channel(server.address, options=_OPTIONS)
        else:
            channel = aio.secure_channel(server.address, self._credentials, options=_OPTIONS)
        # An earlier channel stays open until `close`: closing it now would cancel calls that still use it.
        self._channels.append(channel)
        self._server, self._stubs = server, Stubs(channel)

    async def look_again(self) -> None:
        """Dials another address if the server of the data directory is back at one."""
        async with self._lock:
            try:
                server = self._place.find()
            except EvalfleetError:
                return
            if self._server is not None and (server.address, server.token) != (
                self._server.address,
                self._server.token,
            ):
                self._dial(server)

    async def call(
        self,
        method: Callable[[Stubs], aio.UnaryUnaryMultiCallable[Request, Response]],
        request: Request,
        *,
        timeout: float | None = None,
    ) -> Response:
        """Makes a call, again if it is cut and may be repeated. Large values of its messages travel as blobs.

        `timeout` is the time limit in the request, in seconds, which the server enforces. If its answer does not arrive
        in that time and GRACE_SECONDS more, this raises `DeadlineExceeded`.
        """
        return await self.within(timeout, self._call(method, request), grace=GRACE_SECONDS)

    async def _call(
        self, method: Callable[[Stubs], aio.UnaryUnaryMultiCallable[Request, Response]], request: Request
    ) -> Response:
        request = await self.fit(request)
        response = await self._sent(
            lambda stubs: method(stubs)(request, metadata=self.metadata()), repeat=repeatable(request)
        )
        return await offload.take(response, self._get_blob)

    async def upload(
        self,
        method: Callable[[Stubs], aio.StreamUnaryMultiCallable[Request, Response]],
        requests: Callable[[], AsyncIterator[Request]],
    ) -> Response:
        """Sends a stream of requests, from its beginning again after a cut. What `requests` raises is raised here."""
        faults: list[Exception] = []

        async def watched() -> AsyncIterator[Request]:
            try:
                async for request in requests():
                    yield request
            except Exception as fault:  # gRPC would cancel the call without a reason.
                faults.append(fault)
                raise

        try:
            return await self._sent(lambda stubs: method(stubs)(watched(), metadata=self.metadata()), repeat=True)
        except (asyncio.CancelledError, EvalfleetError):
            if faults:
                raise faults[0] from None
            raise

    async def _sent(self, send: Callable[[Stubs], Awaitable[Result]], *, repeat: bool) -> Result:
        """The response to what is sent, again after a cut if it may be repeated."""
        attempts = Attempts(self, repeat)
        while True:
            stubs = await self.stubs()
            try:
                return await waiting.within(None, send(stubs))
            except aio.AioRpcError as error:
                await attempts.bear(error)
            except asyncio.CancelledError:
                self._raise_if_cut()
                raise

    async def fit(self, request: Request) -> Request:
        """The request, or one of the same content that fits into a message: its large values are stored as blobs."""
        return await offload.put(request, self._put_blob)

    async def pages(
        self, method: Callable[[Stubs], aio.UnaryUnaryMultiCallable[Request, Response]], request: Request
    ) -> AsyncIterator[Response]:
        """The pages of a list, from the request's on."""
        following: Any = request
        while True:
            page: Any = await self.call(method, following)
            yield page
            if not page.next_page_token:
                return
            following.page_token = page.next_page_token

    async def follow(
        self, reopen: Callable[[Stubs], Stream[Response]], *, quiet: float | None = SILENCE_SECONDS
    ) -> AsyncIterator[Response]:
        """Reads a stream to its end. After a cut `reopen` is called again, and makes the call that continues."""
        attempts = Attempts(self, repeat=True)
        while True:
            stream = reopen(await self.stubs())
            messages = stream.__aiter__()
            try:
                while True:
                    message = await waiting.within(quiet, messages.__anext__())
                    attempts.succeeded()
                    yield await offload.take(message, self._get_blob)
            except StopAsyncIteration:
                return
            except aio.AioRpcError as error:
                await attempts.bear(error)
            except EvalfleetError:  # Of a value that was offloaded; it may be a TimeoutError too.
                raise
            except asyncio.TimeoutError:
                await attempts.bear_silence()
            except asyncio.CancelledError:
                self._raise_if_cut()
                raise
            finally:
                stream.cancel()

    async def within(self, timeout: float | None, work: Awaitable[Result], *, grace: float = 0.0) -> Result:
        """Waits for work until `timeout` and `grace` are over, in seconds; then it raises `DeadlineExceeded`."""
        if timeout is None:
            return await work
        try:
            return await waiting.within(timeout + grace, work)
        except asyncio.TimeoutError as late:
            if isinstance(late, EvalfleetError):
                raise
            raise DeadlineExceeded(
                f"the call did not end within {timeout:g} s", code=grpc.StatusCode.DEADLINE_EXCEEDED
            ) from None

    async def each_within(self, timeout: float | None, items: AsyncIterator[Result]) -> AsyncIterator[Result]:
        """Yields the items of a call with a time limit in its request, which is that of `call`.

        Only the time spent waiting for items counts: a reader may take its time with what has arrived.
        """
        waited = 0.0
        while True:
            begun = time.monotonic()
            try:
                item = await self.within(timeout, items.__anext__(), grace=GRACE_SECONDS - waited)
            except StopAsyncIteration:
                return
            waited += time.monotonic() - begun
            yield item

    def _raise_if_cut(self) -> None:
        """Handles a CancelledError from gRPC, which cancels the calls of a channel that `close` closes.

        To the caller that is no cancellation, unless its task was cancelled too (Python 3.10 does not tell).
        """
        cancelling = getattr(asyncio.current_task(), "cancelling", None)
        if self._closed and not (cancelling and cancelling()):
            raise RuntimeError("the client was closed during the call") from None

    @contextlib.contextmanager
    def effect(self, cancel: Callable[[], Coroutine[Any, Any, None]] | None) -> Iterator[None]:
        """Cancels an effect on the server if the block is cancelled, or left as a generator, or the client is closed.

        Without `cancel` the effect continues.
        """
        mark = object()
        if cancel is not None:
            self._effects[mark] = cancel
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            if made := self._effects.get(mark):
                self.later(made())
            raise
        finally:
            self._effects.pop(mark, None)

    def later(self, work: Coroutine[Any, Any, Any]) -> None:
        """Does work in the background whose failure does not matter, such as releasing a result.

        `close` waits for it.
        """

        async def quietly() -> None:
            with contextlib.suppress(EvalfleetError, aio.AioRpcError, RuntimeError):
                await work

        task = asyncio.ensure_future(quietly())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def surely(self, work: Coroutine[Any, Any, None]) -> None:
        """Does work to its end, even if the task that waits for it is cancelled. Then `close` waits for it."""
        task = asyncio.ensure_future(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)
        await asyncio.shield(task)

    def background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Does work in the background until `close` cancels it."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def close(self) -> None:
        """Ends the connection, and the server if this client has started it."""
        if self._closed:
            return
        while self._effects:
            _, cancel = self._effects.popitem()
            self.later(cancel())
        if self._later:
            await asyncio.wait(self._later, timeout=CLOSE_SECONDS)
        self._closed = True
        left = [*self._background, *self._later]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        async with self._lock:  # A server that is being started is stopped too.
            for channel in self._channels:
                await channel.close()
            if self._started is not None:
                await self._started.stop()

    async def _put_blob(self, value: bytes) -> BlobRef:
        from evalfleet.blobs import AsyncBlobs

        return await AsyncBlobs(self).put(value)

    async def _get_blob(self, ref: BlobRef) -> bytes:
        from evalfleet.blobs import AsyncBlobs

        return await AsyncBlobs(self).get(ref.hash)


class Attempts:
    """How long a call has been failing, and what to do about it."""

    def __init__(self, connection: Connection, repeat: bool) -> None:
        self._connection = connection
        self._repeat = repeat
        self.succeeded()

    def succeeded(self) -> None:
        """Begins to count anew."""
        self._since = time.monotonic()
        self._pause = FIRST_PAUSE
        self._silent = False

    async def bear(self, error: aio.AioRpcError) -> None:
        """Waits for the next attempt, or raises the failure if there should be none."""
        failure = self.failure(error)
        pause = max(failure.retry_after or 0.0, self._pause * random.uniform(0.8, 1.2))  # noqa: S311
        if failure.again == "no" or not (self._repeat or failure.again == "yes, not begun"):
            raise failure from None
        if time.monotonic() + pause - self._since > self._connection.patience:
            raise failure from None
        await asyncio.sleep(pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        if isinstance(failure, ServerUnreachable):
            await self._connection.look_again()

    async def bear_silence(self) -> None:
        """Prepares the next attempt after one that brought nothing, or raises if that lasts."""
        server = self._connection._server
        if server is not None and self._silent:
            raise ServerUnreachable(
                f"the server at {server.address} accepts calls and does not answer them; restart it"
            )
        self._silent = True
        await self._connection.look_again()

    def failure(self, error: aio.AioRpcError) -> EvalfleetError:
        """The exception for a failed call, with what this client knows about the server."""
        failure = from_rpc(error)
        server = self._connection._server
        if failure.reason or server is None:
            return failure
        if any(fault in failure.message for fault in _TLS_FAULTS):
            return ServerUntrusted(
                f"the TLS connection to {server.address} fails ({failure.message}); the server needs a certificate for "
                "this host that a CA of `credentials` has signed"
            )
        if failure.code is grpc.StatusCode.UNAVAILABLE:
            return ServerUnreachable(
                f"the server at {server.address} does not answer ({failure.message}); "
                "start it with `evalfleet serve`, or name another"
            )
        if failure.code is grpc.StatusCode.UNIMPLEMENTED:
            version = f", version {server.version}," if server.version else ""
            return NotBuiltYet(
                f"the server at {server.address}{version} does not have this call ({failure.message}); "
                "it is of another version than this package, or no evalfleet server",
                code=failure.code,
            )
        return failure
