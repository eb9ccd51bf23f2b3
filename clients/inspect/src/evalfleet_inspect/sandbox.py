"""The sandbox provider `evalfleet`."""

from __future__ import annotations

import asyncio
import errno
import shlex
import uuid
from collections.abc import Awaitable, Coroutine
from logging import getLogger
from pathlib import PurePosixPath
from typing import Any, Literal, TypeVar, overload

import anyio
from evalfleet import AsyncProcess, AsyncSandbox, exceptions
from evalfleet.connection import Connection
from evalfleet.exceptions import EvalfleetError, ResourceNotFound
from evalfleet.sandbox.v1 import sandbox_pb2 as sandboxes
from evalfleet.sandbox.v1 import sandbox_service_pb2 as calls
from evalfleet.sandboxes import abandon
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    sandboxenv,
    warn_once,
)
from pydantic import BaseModel
from typing_extensions import override

from .attribution import attribution, sample_label
from .config import SandboxConfig, resolve
from .connection import Target, connection
from .errors import in_sandbox, prerequisites
from .release import Releases

logger = getLogger(__name__)

Result = TypeVar("Result")

INPUT_BYTES = 3 << 20
"""Up to this size standard input is sent with its command; a longer one in pieces of this size."""
OUTPUT_CAP = 64 << 20
"""What a sandbox keeps of each output stream at most."""

LONGEST_LEASE = 86400.0
"""Seconds that a sandbox stays which Inspect is told not to clean up."""

OWNER = "inspect.process"
"""Label: the process of Inspect that uses a sandbox."""
TASK = "inspect.task"
"""Label: its task."""
SAMPLE = "inspect.sample"
"""Label: its sample."""

_process = uuid.uuid4().hex

_living: set[EvalfleetSandbox] = set()
"""Sandboxes that this process has made and neither removed nor kept."""


@sandboxenv(name="evalfleet")
class EvalfleetSandbox(SandboxEnvironment):
    """A sandbox of an evalfleet server. Its methods are safe for concurrent use within one event loop."""

    def __init__(self, server: Connection, sandbox: sandboxes.Sandbox) -> None:
        super().__init__()
        self.name = sandbox.name
        """The resource's name, `projects/PROJECT/sandboxes/ID`."""
        self.id = sandbox.name.rpartition("/")[2]
        """The last part of it, as the command line takes it."""
        self.labels = sandbox.spec.labels
        """Labels, those of the configuration and OWNER, TASK and SAMPLE."""
        self._server = server
        self._sandbox = AsyncSandbox(server, sandbox)
        self._ended = Releases(self._release)

    # ---- lifecycle

    @override
    @classmethod
    def config_files(cls) -> list[str]:
        return ["evalfleet.yaml", "compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"]

    @override
    @classmethod
    def is_docker_compatible(cls) -> bool:
        return True

    @override
    @classmethod
    def default_concurrency(cls) -> int | None:
        # The server has the quota, for all processes that use it; a creation waits for it.
        return None

    @override
    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return SandboxConfig.model_validate(config)

    @override
    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        server = connection(Target())
        resolved = resolve(config)
        request = calls.CreateSandboxRequest(parent=server.parent, spec=resolved.spec(), validate_only=True)
        with prerequisites("the sandbox evalfleet cannot be made"):
            await server.call(lambda stubs: stubs.sandboxes.CreateSandbox, request)

    @override
    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        server = connection(Target())
        resolved = resolve(config)
        request = calls.CreateSandboxRequest(
            parent=server.parent, spec=resolved.spec(), request_id=_key(), attribution=attribution(purpose="setup")
        )
        request.spec.labels.update({OWNER: _process, TASK: task_name, SAMPLE: sample_label(metadata)})
        if resolved.create_timeout is not None:
            request.timeout.FromNanoseconds(round(resolved.create_timeout * 1e9))
        with in_sandbox():
            sandbox = await _created(server, request)
        made = cls(server, sandbox)
        made._sandbox.hold(fresh=True)
        _living.add(made)
        return {"default": made}

    @override
    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        with anyio.CancelScope(shield=True):
            for environment in environments.values():
                await environment.as_type(EvalfleetSandbox).delete()

    @override
    @classmethod
    async def task_cleanup(cls, task_name: str, config: SandboxEnvironmentConfigType | None, cleanup: bool) -> None:
        # Inspect calls this at the end of all tasks, and names none of them.
        server = connection(Target())
        left = [one for one in _living if one._server is server]
        if cleanup:
            await asyncio.gather(*(one.delete() for one in left))
        elif left:
            await asyncio.gather(*(one.keep() for one in left))
            print(_left(left))

    @override
    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        server = connection(Target())
        left = [cls(server, sandbox) for sandbox in await listed(server, {})]
        chosen = [one for one in left if (OWNER in one.labels if id is None else one.id == id)]
        if id is not None and not chosen:
            print(f"no sandbox {id}; `evalfleet sandbox ls` shows those that live")
            return
        await asyncio.gather(*(one.delete() for one in chosen))
        print(f"{len(chosen)} sandboxes of evalfleet removed")

    async def delete(self) -> None:
        """Removes the sandbox with its processes and files. One that is gone already is no error."""
        try:
            await self._sandbox.delete()
        except ResourceNotFound:
            pass
        except EvalfleetError as error:
            logger.warning("evalfleet: %s could not be removed and ends with its lease: %s", self.name, error)
            return
        _living.discard(self)

    async def keep(self) -> None:
        """Lets the sandbox live for a day, in which no client has to renew its lease."""
        _living.discard(self)
        self._server.leases.drop(self.name)
        try:
            await self._sandbox.renew(LONGEST_LEASE)
        except EvalfleetError as error:
            logger.warning("evalfleet: %s could not be kept: %s", self.name, error)

    # ---- commands

    @override
    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        # A command runs once under its key, however often the call is repeated, so that there is nothing to retry. It
        # starts no process here, so that there is nothing to throttle.
        limit = min(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE, OUTPUT_CAP)
        stdin = input.encode() if isinstance(input, str) else input or b""
        spec = sandboxes.ExecSpec(argv=cmd, env=env or {}, cwd=cwd or "", user=user or "", max_output_bytes=limit)
        if timeout is not None:
            spec.timeout.FromNanoseconds(round(timeout * 1e9))  # Tools give fractions too.
        if len(stdin) <= INPUT_BYTES:
            spec.stdin = stdin
        else:
            spec.stdin_open = True
        key = _key()
        with in_sandbox(cmd[0] if cmd else ""):
            try:
                result = await self._run(key, spec, stdin)
            except asyncio.CancelledError:
                self._cancel(key)
                raise
        return _result(result, limit, timeout)

    async def _run(self, key: str, spec: sandboxes.ExecSpec, stdin: bytes) -> sandboxes.ExecResult:
        request = calls.ExecRequest(
            sandbox=self.name, request_id=key, spec=spec, attribution=attribution(purpose="tool")
        )
        try:
            call = self._server.call(lambda stubs: stubs.sandboxes.Exec, request)
            response = await (self._fed(key, call, stdin) if spec.stdin_open else call)
            result = response.result
            if len(result.stdout) < result.stdout_bytes or len(result.stderr) < result.stderr_bytes:
                await self._whole(key, result)
            return result
        finally:
            self._ended.add(self._server, key)

    async def _fed(self, key: str, call: Awaitable[Result], stdin: bytes) -> Result:
        """Makes a call of a command while standard input is written to it. A command that reads no more is no error.

        If the input cannot be written for another reason, the command would wait for it in vain: it is cancelled.
        """

        async def feed() -> None:
            offset = 0
            while True:
                chunk = stdin[offset : offset + INPUT_BYTES]
                request = calls.WriteExecInputRequest(
                    sandbox=self.name, request_id=key, offset=offset, data=chunk, eof=offset + len(chunk) == len(stdin)
                )
                try:
                    response = await self._server.call(lambda stubs: stubs.sandboxes.WriteExecInput, request)
                except exceptions.EffectUnknown:
                    await asyncio.sleep(0.01)  # The command has not begun.
                    continue
                offset = response.offset
                if request.eof and offset == len(stdin):
                    return

        command = asyncio.ensure_future(call)
        feeding = asyncio.ensure_future(feed())
        try:
            await asyncio.wait({command, feeding}, return_when=asyncio.FIRST_COMPLETED)
            failure = feeding.exception() if feeding.done() else None
            if failure is not None and not command.done() and not _ended(failure):
                self._cancel(key)
                raise failure
            return await command
        finally:
            for task in (command, feeding):
                task.cancel()
            await asyncio.gather(command, feeding, return_exceptions=True)

    async def _whole(self, key: str, result: sandboxes.ExecResult) -> None:
        """Replaces output that was too large for one message by all that the sandbox has kept."""
        request = calls.StreamExecRequest(sandbox=self.name, request_id=key)
        kept = {"stdout": bytearray(), "stderr": bytearray()}
        async for piece in AsyncProcess(self._sandbox, request, own_key=True):
            kept[piece.stream] += piece.data
        result.stdout, result.stderr = bytes(kept["stdout"]), bytes(kept["stderr"])

    def _release(self, server: Connection, keys: list[str]) -> Coroutine[Any, Any, calls.ReleaseExecResponse]:
        request = calls.ReleaseExecRequest(sandbox=self.name, request_ids=keys)
        return server.call(lambda stubs: stubs.sandboxes.ReleaseExec, request)

    def _cancel(self, key: str) -> None:
        request = calls.CancelExecRequest(sandbox=self.name, request_id=key)
        self._server.later(self._server.call(lambda stubs: stubs.sandboxes.CancelExec, request))

    # ---- files

    @override
    async def write_file(self, file: str, contents: str | bytes) -> None:
        with in_sandbox(file):
            await self._sandbox.write(file, contents)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    @override
    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        if PurePosixPath(file).name in ("", "..") or file.rstrip("/").endswith("/.") or file in (".", "./"):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", file)
        with in_sandbox(file):
            body = await self._sandbox.read(file, max_bytes=SandboxEnvironmentLimits.MAX_READ_FILE_SIZE)
        return body.decode() if text else body

    # ---- people

    @override
    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        try:
            request = calls.GetSandboxRequest(name=self.name)
            sandbox = await self._server.call(lambda stubs: stubs.sandboxes.GetSandbox, request)
        except EvalfleetError as error:
            raise ConnectionError(str(error)) from error
        if sandbox.state != sandboxes.SANDBOX_STATE_READY:
            state = sandboxes.SandboxState.Name(sandbox.state).removeprefix("SANDBOX_STATE_").lower()
            raise ConnectionError(f"the sandbox is {state} {sandbox.state_reason}".strip())
        place = await self._server.server()
        command = ["evalfleet", "--server", place.address, "sandbox", "exec"]
        command += ["--user", user] if user else []
        return SandboxConnection(
            type="evalfleet",
            command=shlex.join([*command, "-i", self.id, "--", "bash", "-l"]),
            container=self.id,
        )

    @override
    def default_polling_interval(self) -> float:
        return 0.2


def _key() -> str:
    return f"inspect-{uuid.uuid4().hex}"


async def _created(server: Connection, request: calls.CreateSandboxRequest) -> sandboxes.Sandbox:
    """Creates a sandbox. Where the server has no room it waits: other samples end, or an operator makes room."""
    try:
        while True:
            try:
                return await server.call(lambda stubs: stubs.sandboxes.CreateSandbox, request)
            except exceptions.SandboxQuota as full:
                warn_once(logger, f"evalfleet: samples wait for room for their sandboxes: {full}")
                await asyncio.sleep(full.retry_after or 1.0)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):
            await _abandon(server, request)
        raise


async def _abandon(server: Connection, request: calls.CreateSandboxRequest) -> None:
    """Stops a creation, and removes the sandbox if it has been made already."""
    try:
        await abandon(server, request)
    except EvalfleetError as error:
        logger.warning("evalfleet: a sandbox that is no longer wanted ends with its lease: %s", error)


async def listed(server: Connection, labels: dict[str, str]) -> list[sandboxes.Sandbox]:
    """The sandboxes that live and have all of these labels."""
    request = calls.ListSandboxesRequest(parent=server.parent, page_size=1000, labels=labels)
    pages = server.pages(lambda stubs: stubs.sandboxes.ListSandboxes, request)
    return [sandbox async for page in pages for sandbox in page.sandboxes]


def _left(left: list[EvalfleetSandbox]) -> str:
    lines = ["", "evalfleet: these sandboxes stay for a day:"]
    lines += [f"  sample {one.labels[SAMPLE]}: {one.id}" for one in left]
    lines.append("look into one:  evalfleet sandbox exec -i ID -- bash -l")
    lines.append("remove them:    inspect sandbox cleanup evalfleet [ID]")
    return "\n".join(lines)


def _ended(failure: BaseException) -> bool:
    """Whether input was refused because its command reads no more."""
    return isinstance(failure, exceptions.InvalidRequest) and "data" in failure.fields


def _result(result: sandboxes.ExecResult, limit: int, timeout: int | None) -> ExecResult[str]:
    stdout, stderr = result.stdout.decode(errors="replace"), result.stderr.decode(errors="replace")
    if result.timed_out:
        late = TimeoutError(f"Command timed out after {timeout} seconds")
        if stdout or stderr:
            late.truncated_output = stdout + stderr  # type: ignore[attr-defined]
        raise late
    if result.stdout_bytes > limit or result.stderr_bytes > limit:
        raise OutputLimitExceededError(
            limit_str=SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR if limit < OUTPUT_CAP else "64 MiB",
            truncated_output=stdout + stderr,
        )
    return ExecResult(result.exit_code == 0, result.exit_code, stdout, stderr)
