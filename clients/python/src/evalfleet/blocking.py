"""The client of programs without asyncio: the same methods as the asynchronous classes, which wait.

Nothing is implemented twice. Each client has a thread with an event loop, on which the asynchronous client runs; a
method here hands the call to that loop and waits for its end.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import functools
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import grpc

from evalfleet.agent.v1 import eval_pb2, run_pb2
from evalfleet.agent.v1.admin_service_pb2 import ServerInfo
from evalfleet.batches import AsyncBatches
from evalfleet.blobs import AsyncBlobs
from evalfleet.cache import AsyncCache
from evalfleet.client import AsyncClient
from evalfleet.connection import CLOSE_SECONDS
from evalfleet.evals import AsyncEval, AsyncEvals
from evalfleet.limits import AsyncLimits
from evalfleet.models import AsyncModels
from evalfleet.runs import AsyncRun, AsyncRuns
from evalfleet.sandbox.v1 import sandbox_pb2
from evalfleet.sandboxes import AsyncProcess, AsyncSandbox, AsyncSandboxes, Output
from evalfleet.tools import AsyncTools

P = ParamSpec("P")
A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")


class Loop:
    """A thread with an event loop. Any thread may use it, but not a process that was forked since."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="evalfleet", daemon=True)
        self._thread.start()
        self._closing = threading.Lock()

    def run(self, work: Coroutine[Any, Any, R], lost: Callable[[R], Coroutine[Any, Any, None]] | None = None) -> R:
        """Does work on the loop. An interrupt (KeyboardInterrupt) cancels it, and waits for its end.

        If the work is done by then, its result is lost to the caller: `lost` ends what it has made.
        """
        if os.getpid() != self._process or self._loop.is_closed():
            work.close()
            if os.getpid() != self._process:
                raise RuntimeError("this client is of the parent process; make one after the fork")
            raise RuntimeError("the client is closed")
        ended = threading.Event()
        done: list[R] = []

        async def whole() -> R:
            try:
                done.append(await work)
                return done[0]
            finally:
                ended.set()

        future = asyncio.run_coroutine_threadsafe(whole(), self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise RuntimeError("the client was closed during the call") from None
        except BaseException:
            future.cancel()
            ended.wait(CLOSE_SECONDS)
            if done and lost is not None:
                with contextlib.suppress(Exception):  # The interrupt is what the caller has to know.
                    asyncio.run_coroutine_threadsafe(lost(done[0]), self._loop).result(CLOSE_SECONDS)
            raise

    def iterate(self, items: AsyncIterator[R]) -> Iterator[R]:
        """Iterates over what is produced on the loop."""

        async def following() -> tuple[R] | None:
            async for item in items:
                return (item,)
            return None

        try:
            while (found := self.run(following())) is not None:
                yield found[0]
        finally:
            if hasattr(items, "aclose") and os.getpid() == self._process and not self._loop.is_closed():
                if threading.current_thread() is self._thread:  # It is collected there as garbage.
                    asyncio.run_coroutine_threadsafe(items.aclose(), self._loop)
                else:
                    self.run(items.aclose())

    def close(self) -> None:
        """Ends the thread. Calls that other threads wait for raise RuntimeError."""
        if os.getpid() != self._process:
            return
        with self._closing:
            if not self._loop.is_closed():
                asyncio.run_coroutine_threadsafe(_end_tasks(), self._loop).result()
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.close()


async def _end_tasks() -> None:
    """Cancels everything else on the loop, and waits for it."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


class Twin(Generic[A]):
    """An object whose methods run those of its asynchronous twin."""

    def __init__(self, loop: Loop, twin: A) -> None:
        self._loop = loop
        self._twin = twin

    def __repr__(self) -> str:
        return repr(self._twin)


S = TypeVar("S", bound=Twin[Any])
Block = TypeVar("Block", AsyncProcess, AsyncSandbox)


def blocking(method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """The method that waits for an asynchronous one."""

    @functools.wraps(method)
    def call(self: Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._loop.run(method(self._twin, *args, **kwargs))

    return call


def making(
    kind: Callable[[Loop, R], T], method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]]
) -> Callable[Concatenate[Any, P], T]:
    """The method that waits for an asynchronous one, and returns the twin of its result."""

    @functools.wraps(method)
    def call(self: Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return kind(self._loop, self._loop.run(method(self._twin, *args, **kwargs)))

    return call


def owning(
    kind: Callable[[Loop, Block], T], method: Callable[Concatenate[A, P], Coroutine[Any, Any, Block]]
) -> Callable[Concatenate[Any, P], T]:
    """As `making`, for what lives as long as its block: an interrupt ends what it makes, unless that has a key."""

    async def leave(made: Block) -> None:
        await made.__aexit__(None, None, None)

    @functools.wraps(method)
    def call(self: Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        lost = leave if kwargs.get("key") is None else None
        return kind(self._loop, self._loop.run(method(self._twin, *args, **kwargs), lost))

    return call


def listing(
    kind: Callable[[Loop, R], T], method: Callable[Concatenate[A, P], Coroutine[Any, Any, list[R]]]
) -> Callable[Concatenate[Any, P], list[T]]:
    """The method that waits for an asynchronous one, and returns the twins of its results."""

    @functools.wraps(method)
    def call(self: Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> list[T]:
        return [kind(self._loop, found) for found in self._loop.run(method(self._twin, *args, **kwargs))]

    return call


def chaining(method: Callable[Concatenate[A, P], Coroutine[Any, Any, A]]) -> Callable[Concatenate[S, P], S]:
    """The method that waits for an asynchronous one which returns its object, and returns the twin."""

    @functools.wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> S:
        self._loop.run(method(self._twin, *args, **kwargs))
        return self

    return call


def iterating(method: Callable[Concatenate[A, P], AsyncIterator[R]]) -> Callable[Concatenate[Any, P], Iterator[R]]:
    """The method that iterates over what an asynchronous one yields."""

    @functools.wraps(method)
    def call(self: Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        return self._loop.iterate(method(self._twin, *args, **kwargs))

    return call


class Models(Twin[AsyncModels]):
    """Models of any configured provider: AsyncModels, waiting."""

    generate = blocking(AsyncModels.generate)
    stream = iterating(AsyncModels.stream)
    count_tokens = blocking(AsyncModels.count_tokens)
    compact = blocking(AsyncModels.compact)
    list = blocking(AsyncModels.list)
    get = blocking(AsyncModels.get)
    providers = blocking(AsyncModels.providers)
    check = blocking(AsyncModels.check)


class Tools(Twin[AsyncTools]):
    """The tools that tasks and runs may name: AsyncTools, waiting."""

    list = blocking(AsyncTools.list)


class Batches(Twin[AsyncBatches]):
    """The batches of a project: AsyncBatches, waiting."""

    list = blocking(AsyncBatches.list)
    cancel = blocking(AsyncBatches.cancel)


class Limits(Twin[AsyncLimits]):
    """Limits of model calls: AsyncLimits, waiting."""

    pools = blocking(AsyncLimits.pools)
    set_pool = blocking(AsyncLimits.set_pool)
    budgets = blocking(AsyncLimits.budgets)
    set_budget = blocking(AsyncLimits.set_budget)


class Cache(Twin[AsyncCache]):
    """The cached answers of a project: AsyncCache, waiting."""

    sizes = blocking(AsyncCache.sizes)
    list = blocking(AsyncCache.list)
    clear = blocking(AsyncCache.clear)


class Blobs(Twin[AsyncBlobs]):
    """The bodies of a project: AsyncBlobs, waiting."""

    put = blocking(AsyncBlobs.put)
    get = blocking(AsyncBlobs.get)
    stream = iterating(AsyncBlobs.stream)


class Process(Twin[AsyncProcess]):
    """A running command: AsyncProcess, waiting. Iterating over it yields its output."""

    wait = blocking(AsyncProcess.wait)
    write = blocking(AsyncProcess.write)
    kill = blocking(AsyncProcess.kill)

    @property
    def pid(self) -> int:
        """Its process id inside the sandbox."""
        return self._twin.pid

    @property
    def key(self) -> str:
        """The command's key."""
        return self._twin.key

    def __iter__(self) -> Iterator[Output]:
        return self._loop.iterate(self._twin.__aiter__())

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._twin.__aexit__(kind, error, trace))


class Sandbox(Twin[AsyncSandbox]):
    """A sandbox: AsyncSandbox, waiting. At the end of a `with` block it is deleted."""

    exec = blocking(AsyncSandbox.exec)
    start = owning(Process, AsyncSandbox.start)
    read = blocking(AsyncSandbox.read)
    read_text = blocking(AsyncSandbox.read_text)
    write = blocking(AsyncSandbox.write)
    list_files = blocking(AsyncSandbox.list_files)
    remove = blocking(AsyncSandbox.remove)
    upload = blocking(AsyncSandbox.upload)
    download = blocking(AsyncSandbox.download)
    renew = blocking(AsyncSandbox.renew)
    delete = blocking(AsyncSandbox.delete)

    def hold(self, *, fresh: bool = False) -> None:
        """Renews the lease from now on, until `delete` or the client's end: at once, unless it is fresh."""

        async def hold() -> None:
            self._twin.hold(fresh=fresh)

        self._loop.run(hold())

    @property
    def info(self) -> sandbox_pb2.Sandbox:
        """The sandbox as it was created."""
        return self._twin.info

    @property
    def name(self) -> str:
        """`projects/…/sandboxes/…`."""
        return self._twin.name

    @property
    def workdir(self) -> str:
        """The absolute path of the working directory."""
        return self._twin.workdir

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.delete()


class Sandboxes(Twin[AsyncSandboxes]):
    """The sandboxes of a project: AsyncSandboxes, waiting."""

    create = owning(Sandbox, AsyncSandboxes.create)
    get = making(Sandbox, AsyncSandboxes.get)
    drivers = blocking(AsyncSandboxes.drivers)
    list = listing(Sandbox, AsyncSandboxes.list)


class Eval(Twin[AsyncEval]):
    """An evaluation: AsyncEval, waiting."""

    refresh = chaining(AsyncEval.refresh)
    wait = chaining(AsyncEval.wait)
    watch = iterating(AsyncEval.watch)
    samples = blocking(AsyncEval.samples)
    results = blocking(AsyncEval.results)
    metrics = blocking(AsyncEval.metrics)
    cancel = chaining(AsyncEval.cancel)
    resume = chaining(AsyncEval.resume)
    update = chaining(AsyncEval.update)
    delete = blocking(AsyncEval.delete)
    save_log = blocking(AsyncEval.save_log)

    @property
    def info(self) -> eval_pb2.Eval:
        """The evaluation as the last call found it."""
        return self._twin.info

    @property
    def name(self) -> str:
        """`projects/…/evals/…`."""
        return self._twin.name

    @property
    def state(self) -> str:
        """`pending`, `running`, `succeeded`, `failed` or `cancelled`, as the last call found it."""
        return self._twin.state

    @property
    def ended(self) -> bool:
        """Whether it has ended, as the last call found it."""
        return self._twin.ended


class Evals(Twin[AsyncEvals]):
    """The evaluations of a project: AsyncEvals, waiting."""

    create = making(Eval, AsyncEvals.create)
    get = making(Eval, AsyncEvals.get)
    list = listing(Eval, AsyncEvals.list)
    scorers = blocking(AsyncEvals.scorers)


class Run(Twin[AsyncRun]):
    """A run: AsyncRun, waiting."""

    refresh = chaining(AsyncRun.refresh)
    wait = chaining(AsyncRun.wait)
    output = blocking(AsyncRun.output)
    messages = blocking(AsyncRun.messages)
    watch = iterating(AsyncRun.watch)
    post = blocking(AsyncRun.post)
    interrupt = blocking(AsyncRun.interrupt)
    cancel_call = blocking(AsyncRun.cancel_call)
    hold = chaining(AsyncRun.hold)
    resume = chaining(AsyncRun.resume)
    set_limits = chaining(AsyncRun.set_limits)
    cancel = chaining(AsyncRun.cancel)
    delete = blocking(AsyncRun.delete)

    @property
    def info(self) -> run_pb2.Run:
        """The run as the last call found it."""
        return self._twin.info

    @property
    def name(self) -> str:
        """`projects/…/runs/…`."""
        return self._twin.name

    @property
    def state(self) -> str:
        """`pending`, `running`, `waiting`, `scoring`, `succeeded`, `failed` or `cancelled`, as last found."""
        return self._twin.state

    @property
    def ended(self) -> bool:
        """Whether it has ended, as the last call found it."""
        return self._twin.ended


class Runs(Twin[AsyncRuns]):
    """The runs of a project: AsyncRuns, waiting."""

    create = making(Run, AsyncRuns.create)
    get = making(Run, AsyncRuns.get)
    list = listing(Run, AsyncRuns.list)
    agents = blocking(AsyncRuns.agents)


class Client:
    """A client of one server. It connects on first use; any thread may use it.

        with Client() as client:
            print(client.models.generate("openai/gpt-4o-mini", "Why is the sky blue?"))

    Its arguments are those of AsyncClient, and its methods wait where those of AsyncClient are awaited. A process that
    was forked needs a client of its own.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        project: str = "default",
        start: bool | str = False,
        patience: float = 30.0,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        self._loop = Loop()

        async def make() -> AsyncClient:
            return AsyncClient(
                server,
                token=token,
                token_file=token_file,
                data_dir=data_dir,
                project=project,
                start=start,
                patience=patience,
                credentials=credentials,
            )

        try:
            self._twin = self._loop.run(make())
        except BaseException:
            self._loop.close()
            raise
        self.models = Models(self._loop, self._twin.models)
        self.sandboxes = Sandboxes(self._loop, self._twin.sandboxes)
        self.evals = Evals(self._loop, self._twin.evals)
        self.runs = Runs(self._loop, self._twin.runs)
        self.tools = Tools(self._loop, self._twin.tools)
        self.blobs = Blobs(self._loop, self._twin.blobs)
        self.batches = Batches(self._loop, self._twin.batches)
        self.limits = Limits(self._loop, self._twin.limits)
        self.cache = Cache(self._loop, self._twin.cache)
        atexit.register(self.close)  # A generator that is collected later would wait for a thread that has ended.

    def __enter__(self) -> Client:
        try:
            self.server()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def server(self) -> str:
        """The server's address."""
        return self._loop.run(self._twin.server())

    def info(self) -> ServerInfo:
        """What the server is: its version, its services, its default driver."""
        return self._loop.run(self._twin.info())

    def close(self) -> None:
        """Ends the connection, and the server if this client has started it. Closing again has no effect.

        The end of the program closes a client too.
        """
        atexit.unregister(self.close)
        try:
            self._loop.run(self._twin.close())
        except RuntimeError:
            return
        self._loop.close()
