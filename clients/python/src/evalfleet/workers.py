"""Workers: functions of your own that serve tools, scorers and decisions of agents."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
import json
import logging
import os
import random
import signal
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, Union

import grpc
from google.protobuf import json_format
from google.protobuf.message import Message
from grpc import aio

from evalfleet import durations, schema, waiting
from evalfleet._error import EvalfleetError
from evalfleet.agent.v1 import score_pb2
from evalfleet.blobs import AsyncBlobs
from evalfleet.client import AsyncClient
from evalfleet.connection import FIRST_PAUSE, LONGEST_PAUSE, SILENCE_SECONDS, Attempts, Connection
from evalfleet.content.v1.content_pb2 import Content
from evalfleet.exceptions import ServerUnreachable, ServerUntrusted
from evalfleet.messages import Conversation, conversation
from evalfleet.worker.v1 import payload_pb2
from evalfleet.worker.v1 import worker_service_pb2 as pb

OnUnknown = Literal["fail", "retry", "ask"]
"""What becomes of a call whose worker is lost and does not come back: docs/workers.md."""

MAX_RESULT_BYTES = 3_000_000
"""Larger results travel as blobs."""
LOCK_SECONDS = 5.0
"""How long a worker waits for the end of the one before it, which has its file of results open."""

_log = logging.getLogger("evalfleet.worker")
_Payload = TypeVar("_Payload", bound=Message)
_Function = TypeVar("_Function", bound=Callable[..., Any])

# A registration that failed so fails again.
_HOPELESS = (
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
)


class ToolError(Exception):
    """What a function raises to fail a call with an error of a type of its own.

    A tool's error goes to the model; with `fatal` the run fails and the model sees nothing. Types are `timeout`,
    `permission`, `file_not_found`, `limit`, `unknown` and others of docs/workers.md.
    """

    def __init__(self, message: str, *, type: str = "unknown", fatal: bool = False) -> None:
        super().__init__(message)
        self.type = type
        self.fatal = fatal


@dataclass(frozen=True)
class Score:
    """A scorer's judgement."""

    value: Any
    """A number, a text such as `C` or `I`, a truth value, a list or a dict of these; None: not scored."""
    answer: str | None = None
    """The answer that was judged."""
    explanation: str | None = None
    """Why."""
    metadata: Mapping[str, Any] = field(default_factory=dict)


class Store(MutableMapping[str, Any]):
    """The entries of a run's store that an offer names. What a call changes is journaled with its answer."""

    def __init__(self, entries: Mapping[str, str]) -> None:
        self._entries = {key: json.loads(value) for key, value in entries.items()}
        self._before = dict(entries)

    def __getitem__(self, key: str) -> Any:
        return self._entries[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._entries[key] = value

    def __delitem__(self, key: str) -> None:
        del self._entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _changes(self) -> list[dict[str, str]]:
        changes = [{"key": key} for key in self._before if key not in self._entries]
        for key, value in self._entries.items():
            if key not in self._before or json.loads(self._before[key]) != value:
                changes.append({"key": key, "valueJson": json.dumps(value)})
        return changes


class Call(Generic[_Payload]):
    """A call of a worker's function."""

    def __init__(self, call: pb.Call, payload: _Payload, report: Callable[[str], None]) -> None:
        self.key = call.key
        """The call's key, which is the same when the call is repeated."""
        self.name = call.name
        """The name of the offer."""
        self.timeout = call.timeout.ToTimedelta().total_seconds() if call.HasField("timeout") else None
        """Seconds that are left for it; None: no bound."""
        self.payload = payload
        """The payload in the protocol."""
        self.store = Store(getattr(payload, "store", {}))
        """The entries of the run's store that the offer names."""
        self.cancelled = threading.Event()
        """Set when the result is no longer wanted. An async function is cancelled as well."""
        self._report = report

    def progress(self, message: str) -> None:
        """Shows people the progress of the call, in one line of at most 200 characters. Any thread may call it."""
        self._report(message)


class ScorerCall(Call[payload_pb2.ScorerPayload]):
    """A sample to judge."""

    @property
    def answer(self) -> str:
        """The text of the output."""
        return self.payload.output.completion

    @property
    def target(self) -> str:
        """What is right; the first if several are."""
        return self.payload.target.values[0] if self.payload.target.values else ""

    @property
    def targets(self) -> list[str]:
        """What is right: any of these."""
        return list(self.payload.target.values)

    @property
    def metadata(self) -> Any:
        """Metadata of the sample."""
        return json.loads(self.payload.metadata_json or "{}")


class ContinueCall(Call[payload_pb2.ContinuePayload]):
    """A turn of an agent that has ended."""

    @property
    def answer(self) -> str:
        """The text of the last output."""
        return self.payload.output.completion


ToolCallContext = Call[payload_pb2.ToolPayload]
"""A call of a tool: what a tool's function receives if it has a parameter of this type."""

Decision = Union[bool, str, Conversation]
"""How an agent continues: whether it does, or with which message of the user, or with which conversation."""


class Worker:
    """Serves functions to runs and evaluations, wherever this program runs.

        worker = Worker(results="results.db")

        @worker.scorer(on_unknown="retry")
        def near(call: ScorerCall, tolerance: float = 0.5) -> bool:
            '''Whether a number is near enough to the right one.'''
            return abs(float(call.answer) - float(call.target)) <= tolerance

        worker.run()

    Functions may be async; each call of others has a thread of its own. It connects again whenever the connection or
    the server is lost, works on meanwhile, and sends each result until the server has accepted it.

    Args:
        results: A file for results that the server has not accepted yet. With it, a worker that was killed and started
            again sends them in place of repeating the work, so that `on_unknown="retry"` is right for any call. Each
            worker needs a file of its own; one that another worker has open raises RuntimeError.
        max_in_flight: Calls at once.
        name: The worker's name, for people.
        client: The client to connect with; default: a client of its own, as `AsyncClient(**options)`.
        options: Options of AsyncClient, such as `server`.
    """

    def __init__(
        self,
        *,
        results: str | os.PathLike[str] | None = None,
        max_in_flight: int = 1,
        name: str = "",
        client: AsyncClient | None = None,
        **options: Any,
    ) -> None:
        self._client = client
        self._options = options
        self._name = name
        self._max_in_flight = max_in_flight
        self._results = _Results(results)
        self._offers: list[pb.Offer] = []
        self._functions: dict[tuple[str, str], Callable[[pb.Call, Callable[[str], None]], Awaitable[str]]] = {}
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._out: asyncio.Queue[pb.ConnectRequest] | None = None
        self._registered: asyncio.Event | None = None
        self._draining = False

    def tool(
        self,
        *,
        name: str = "",
        description: str = "",
        parameters: Mapping[str, Any] | None = None,
        on_unknown: OnUnknown = "fail",
        parallel: bool = False,
        timeout: float | None = None,
        store_keys: Sequence[str] = (),
        version: str = "",
    ) -> Callable[[_Function], _Function]:
        """Serves the function below as a tool. It receives the arguments and returns what the model sees.

        A first parameter with the annotation `ToolCallContext` receives the call itself. An exception fails the call,
        and its text goes to the model.

        Args:
            name: What tasks write; default: the function's name.
            description: What the model reads; default: the docstring.
            parameters: A JSON Schema of the arguments; default: from the signature and the section `Args:` of the
                docstring. The tool and each parameter need a description.
            on_unknown: What becomes of a call whose worker is lost: `retry` gives it to the next worker, or to this one
                when it is back; `fail` ends its run.
            parallel: Whether calls of one message may run side by side.
            timeout: Seconds that a call may take; the model then sees a `timeout`.
            store_keys: Entries of the run's store that it may read and change; a trailing `*` matches any suffix.
            version: Version, for people.
        """

        def serve(function: _Function) -> _Function:
            with_call = _takes(function, Call)
            text, described = schema.describe(function, skip=with_call, parameters=parameters)
            offer = pb.Offer(
                kind="tool",
                name=name or function.__name__,
                description=description or text,
                parameters_json=json.dumps(described),
                parallel=parallel,
            )

            async def call(request: pb.Call, report: Callable[[str], None]) -> str:
                this = Call(request, _read(request, payload_pb2.ToolPayload()), report)
                arguments = json.loads(this.payload.arguments_json or "{}")
                result = await self._invoke(this, function, [this] if with_call else [], arguments)
                if isinstance(result, (list, tuple)) and result and all(isinstance(part, Content) for part in result):
                    answer: dict[str, Any] = {"parts": [json_format.MessageToDict(part) for part in result]}
                else:
                    answer = {"text": "" if result is None else result}
                return _answer(answer, this.store)

            self._serve(offer, call, on_unknown, timeout, store_keys, version)
            return function

        return serve

    def scorer(
        self,
        *,
        name: str = "",
        parameters: Mapping[str, Any] | None = None,
        on_unknown: OnUnknown = "fail",
        timeout: float | None = None,
        store_keys: Sequence[str] = (),
        version: str = "",
    ) -> Callable[[_Function], _Function]:
        """Serves the function below as a scorer. It receives a ScorerCall and the scorer's parameters.

        It returns a Score, or only the value of one. An exception fails the run.

        Args:
            name: What tasks write; default: the function's name.
            parameters: A JSON Schema of the parameters; default: from the signature.
            on_unknown: What becomes of a call whose worker is lost.
            timeout: Seconds that a call may take.
            store_keys: Entries of the run's store that it may read and change.
            version: Version, for people.
        """

        def serve(function: _Function) -> _Function:
            text, described = schema.describe(function, skip=1, parameters=parameters)
            offer = pb.Offer(
                kind="scorer",
                name=name or function.__name__,
                description=text,
                parameters_json=json.dumps(described),
            )

            async def call(request: pb.Call, report: Callable[[str], None]) -> str:
                this = ScorerCall(request, _read(request, payload_pb2.ScorerPayload()), report)
                result = await self._invoke(this, function, [this], json.loads(this.payload.params_json or "{}"))
                score = result if isinstance(result, Score) else Score(result)
                judgement: dict[str, Any] = {"value": json_format.MessageToDict(_score_value(score.value))}
                if score.answer is not None:
                    judgement["answer"] = score.answer
                if score.explanation is not None:
                    judgement["explanation"] = score.explanation
                if score.metadata:
                    judgement["metadataJson"] = json.dumps(dict(score.metadata))
                return _answer({"score": judgement}, this.store)

            self._serve(offer, call, on_unknown, timeout, store_keys, version)
            return function

        return serve

    def on_continue(
        self,
        *,
        name: str = "",
        on_unknown: OnUnknown = "fail",
        timeout: float | None = None,
        store_keys: Sequence[str] = (),
        version: str = "",
    ) -> Callable[[_Function], _Function]:
        """Serves the function below as a `continue` function, which an agent asks after each turn.

        It receives a ContinueCall and returns whether the agent continues (a bool), a text as the next message of the
        user, or messages as the conversation from now on. An exception fails the run.

        Args:
            name: What tasks write; default: the function's name.
            on_unknown: What becomes of a call whose worker is lost.
            timeout: Seconds that a call may take.
            store_keys: Entries of the run's store that it may read and change.
            version: Version, for people.
        """

        def serve(function: _Function) -> _Function:
            text = " ".join((inspect.getdoc(function) or "").split())
            offer = pb.Offer(kind="continue", name=name or function.__name__, description=text)

            async def call(request: pb.Call, report: Callable[[str], None]) -> str:
                this = ContinueCall(request, _read(request, payload_pb2.ContinuePayload()), report)
                decision = await self._invoke(this, function, [this], {})
                if isinstance(decision, bool):
                    answer: dict[str, Any] = {"proceed": decision}
                elif isinstance(decision, str):
                    answer = {"message": decision}
                else:
                    messages = [json_format.MessageToDict(message) for message in conversation(decision)]
                    answer = {"conversation": {"messages": messages}}
                return _answer(answer, this.store)

            self._serve(offer, call, on_unknown, timeout, store_keys, version)
            return function

        return serve

    def run(self) -> None:
        """Serves until the process receives SIGINT or SIGTERM; then it ends after its calls in flight."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        serving = asyncio.ensure_future(self.serve())

        def stop() -> None:
            if self._draining:
                serving.cancel()
            self.drain()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        with contextlib.suppress(asyncio.CancelledError):
            await serving

    async def serve(self) -> None:
        """Serves until `drain`, or until the task is cancelled. A worker serves once.

        It raises the server's error if that refuses the token or an offer.
        """
        client = self._client or AsyncClient(**self._options)
        pause = FIRST_PAUSE
        try:
            while not self._draining or self._calls or self._results:
                self._registered = asyncio.Event()
                try:
                    await self._session(client._connection)
                except aio.AioRpcError as error:
                    failure = Attempts(client._connection, repeat=True).failure(error)
                    if failure.code in _HOPELESS or isinstance(failure, ServerUntrusted):
                        raise failure from error
                    _log.warning("connecting again: %s", failure)
                except (EvalfleetError, asyncio.TimeoutError) as failure:
                    if isinstance(failure, EvalfleetError) and failure.again == "no":
                        raise
                    _log.warning("connecting again: %s", failure or "the server is silent")
                finally:
                    self._out = None
                if self._registered.is_set():
                    pause = FIRST_PAUSE
                if not self._draining or self._calls or self._results:
                    await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311
                    await client._connection.look_again()
                    pause = min(pause * 2, LONGEST_PAUSE)
        finally:
            for call in self._calls.values():
                call.cancel()
            await asyncio.gather(*self._calls.values(), return_exceptions=True)
            self._results.close()
            if self._client is None:
                await client.close()

    def drain(self) -> None:
        """Accepts no further calls: `serve` returns when those in flight are answered."""
        self._draining = True
        self._send(pb.ConnectRequest(draining=pb.Draining()))

    def _serve(
        self,
        offer: pb.Offer,
        function: Callable[[pb.Call, Callable[[str], None]], Awaitable[str]],
        on_unknown: OnUnknown,
        timeout: float | None,
        store_keys: Sequence[str],
        version: str,
    ) -> None:
        offer.on_unknown, offer.version = on_unknown, version
        offer.store_keys.extend(store_keys)
        if timeout is not None:
            offer.timeout.CopyFrom(durations.of_seconds(timeout))
        if (offer.kind, offer.name) in self._functions:
            raise ValueError(f"the {offer.kind} {offer.name} is served already")
        self._offers.append(offer)
        self._functions[offer.kind, offer.name] = function

    async def _invoke(
        self, call: Call[Any], function: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(*positional, **named)
        work = functools.partial(function, *positional, **named)
        try:
            return await _in_thread(work)
        except asyncio.CancelledError:
            call.cancelled.set()
            raise

    def _send(self, frame: pb.ConnectRequest) -> None:
        if self._out is not None:
            self._out.put_nowait(frame)

    async def _session(self, connection: Connection) -> None:
        """One connection, until it ends."""
        stubs = await connection.stubs()
        stream = stubs.workers.Connect(metadata=connection.metadata())
        out: asyncio.Queue[pb.ConnectRequest] = asyncio.Queue()
        unfinished = [*self._calls, *self._results]
        register = pb.Register(
            worker=self._name,
            offers=self._offers,
            max_in_flight=self._max_in_flight,
            unfinished=unfinished,
            project=connection.parent,
        )
        out.put_nowait(pb.ConnectRequest(register=register))
        self._out = out
        writer = asyncio.ensure_future(self._write(stream, out))
        blobs = AsyncBlobs(connection)
        try:
            while True:
                frame = await waiting.within(SILENCE_SECONDS, stream.read())
                if not isinstance(frame, pb.ConnectResponse):
                    return
                await self._handle(frame, blobs)
        finally:
            writer.cancel()
            stream.cancel()

    async def _write(self, stream: Any, out: asyncio.Queue[pb.ConnectRequest]) -> None:
        with contextlib.suppress(aio.AioRpcError, asyncio.InvalidStateError):  # The reader has the cause.
            while True:
                await stream.write(await out.get())

    async def _handle(self, frame: pb.ConnectResponse, blobs: AsyncBlobs) -> None:
        kind = frame.WhichOneof("frame")
        if kind == "registered":
            _log.info("registered as %s", frame.registered.worker)
            assert self._registered is not None
            self._registered.set()
            for key in frame.registered.forget:
                self._forget(key)
            for key in list(self._results):
                await self._answer(key, blobs)
            if self._draining:
                self._send(pb.ConnectRequest(draining=pb.Draining()))
        elif kind == "call":
            key = frame.call.key
            if key in self._results:
                await self._answer(key, blobs)
            elif key not in self._calls:
                self._calls[key] = asyncio.ensure_future(self._work(frame, blobs))
        elif kind == "cancel":
            self._forget(frame.cancel.key)
        elif kind == "accepted":
            if frame.accepted.problem:
                _log.error("call %s: the server refused the result: %s", frame.accepted.key, frame.accepted.problem)
            self._results.remove(frame.accepted.key)
        elif kind == "ping":
            self._send(pb.ConnectRequest(pong=pb.Pong()))

    def _forget(self, key: str) -> None:
        self._results.remove(key)
        if call := self._calls.pop(key, None):
            call.cancel()

    async def _work(self, frame: pb.ConnectResponse, blobs: AsyncBlobs) -> None:
        """Carries a call out, keeps its result, and sends it."""
        call = frame.call
        loop = asyncio.get_running_loop()
        _log.info("call %s", call.key)

        def report(message: str) -> None:
            progress = pb.ConnectRequest(progress=pb.CallProgress(key=call.key, message=message))
            loop.call_soon_threadsafe(self._send, progress)

        result = pb.CallResult(key=call.key)
        try:
            if frame.offloaded:
                try:
                    call.payload_json = (await blobs.get(frame.offloaded[0].blob.hash)).decode()
                except ServerUnreachable:  # The call is not among the unfinished ones when we are back: it comes again.
                    del self._calls[call.key]
                    return
            result.payload_json = await self._functions[call.kind, call.name](call, report)
        except asyncio.CancelledError:
            if self._calls.get(call.key) is asyncio.current_task():
                del self._calls[call.key]
            raise
        except ToolError as failure:
            result.error.CopyFrom(pb.CallError(type=failure.type, message=str(failure), fatal=failure.fatal))
        except Exception as failure:  # Whatever a function raises is the failure of its call.
            _log.warning("call %s failed", call.key, exc_info=True)
            text = f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__
            result.error.CopyFrom(pb.CallError(type="unknown", message=text))
        self._results.keep(result)
        del self._calls[call.key]
        with contextlib.suppress(EvalfleetError):  # The next connection begins with it.
            await self._answer(call.key, blobs)

    async def _answer(self, key: str, blobs: AsyncBlobs) -> None:
        """Sends a result, if there is a connection. A large one is a blob."""
        result = self._results.get(key)
        if result is None or self._out is None:
            return
        answer = pb.ConnectRequest(result=result)
        payload = result.payload_json.encode()
        if len(payload) > MAX_RESULT_BYTES:
            ref = await blobs.put(payload)
            answer.result.payload_json = ""
            answer.offloaded.add(field="result.payload_json", blob=pb.OffloadedBody(hash=ref.hash, size=ref.size))
        self._send(answer)


class _Results:
    """Results by the keys of their calls, until they are accepted. In a file they outlive the process."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._file: sqlite3.Connection | None = None
        self._kept: dict[str, pb.CallResult] = {}
        if path is not None:
            self._file = sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False)
            # The lock is held until `close`. Two workers with a file would answer, and forget, each other's calls.
            self._file.execute("PRAGMA locking_mode = EXCLUSIVE")
            try:
                self._file.executescript(
                    "BEGIN EXCLUSIVE; CREATE TABLE IF NOT EXISTS results (key PRIMARY KEY, result); COMMIT"
                )
            except sqlite3.OperationalError as locked:
                self._file.close()
                raise RuntimeError(
                    f"the file of results {path} cannot be used: {locked}; is it another worker's?"
                ) from locked
            for key, result in self._file.execute("SELECT key, result FROM results"):
                self._kept[key] = pb.CallResult.FromString(result)

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __contains__(self, key: str) -> bool:
        return key in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> pb.CallResult | None:
        """A result that was kept."""
        return self._kept.get(key)

    def keep(self, result: pb.CallResult) -> None:
        """Keeps a result. It is on disk before it is sent; one that cannot be written fails its call."""
        if self._file is not None:
            row = [result.key, result.SerializeToString()]
            try:
                self._file.execute("INSERT OR REPLACE INTO results VALUES (?, ?)", row)
            except sqlite3.Error as failure:
                _log.error("call %s: the result cannot be kept: %s", result.key, failure)
                error = pb.CallError(type="unknown", message=f"the worker cannot keep the result: {failure}")
                result = pb.CallResult(key=result.key, error=error)
        self._kept[result.key] = result

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()

    def remove(self, key: str) -> None:
        """Removes a result that was accepted, or is not wanted."""
        if self._kept.pop(key, None) is not None and self._file is not None:
            with contextlib.suppress(sqlite3.Error):
                self._file.execute("DELETE FROM results WHERE key = ?", [key])


async def _in_thread(work: Callable[[], Any]) -> Any:
    """Does work in a thread of its own.

    Work whose call was cancelled keeps no other call waiting, and does not hold up the end of the program.
    """
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except StopIteration as failure:  # asyncio takes it for the end of a coroutine.
            future.set_exception(RuntimeError(repr(failure)))
        except BaseException as failure:
            future.set_exception(failure)

    threading.Thread(target=run, name="evalfleet-worker", daemon=True).start()
    return await asyncio.wrap_future(future)


def _takes(function: Callable[..., Any], kind: type) -> bool:
    """Whether the first parameter of a function is annotated with a kind of call."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None:
        return False
    hint = inspect.get_annotations(function, eval_str=True).get(first.name)
    return getattr(hint, "__origin__", hint) is kind


def _read(request: pb.Call, payload: _Payload) -> _Payload:
    return json_format.Parse(request.payload_json, payload, ignore_unknown_fields=True)


def _answer(answer: dict[str, Any], store: Store) -> str:
    if changes := store._changes():
        answer["storeChanges"] = changes
    return json.dumps(answer)


def _score_value(value: Any) -> score_pb2.ScoreValue:
    if value is None:
        return score_pb2.ScoreValue(unscored=True)
    if isinstance(value, bool):
        return score_pb2.ScoreValue(flag=value)
    if isinstance(value, (int, float)):
        return score_pb2.ScoreValue(number=value, integer=isinstance(value, int))
    if isinstance(value, str):
        return score_pb2.ScoreValue(text=value)
    if isinstance(value, Mapping):
        entries = [score_pb2.ScoreValueEntry(key=key, value=_score_value(item)) for key, item in value.items()]
        return score_pb2.ScoreValue(map=score_pb2.ScoreValueMap(entries=entries))
    if isinstance(value, Sequence):
        return score_pb2.ScoreValue(list=score_pb2.ScoreValueList(values=[_score_value(item) for item in value]))
    raise TypeError(f"{value!r} is no value of a score; it is a number, a text, a truth value, a list or a dict")
