"""Sandboxes: isolated machines for commands and files."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Literal, Union

from evalfleet import durations, files
from evalfleet.connection import Connection, Stream, Stubs
from evalfleet.exceptions import FileNotFound, InvalidPath, SandboxTerminated
from evalfleet.keys import new_key
from evalfleet.sandbox.v1 import sandbox_pb2
from evalfleet.sandbox.v1 import sandbox_service_pb2 as pb

Command = Union[str, Sequence[str]]
"""A command: program and arguments, or a text for `sh -c`."""
Content = Union[str, bytes]
"""The content of a file: bytes, or a text as UTF-8."""

UNARY_BYTES = 2 << 20
"""Files up to this size travel in one message."""
LISTED_LEVELS = 8
"""How deep one list of files goes."""
ANY_SIZE = (1 << 63) - 1


@dataclass(frozen=True)
class ExecResult:
    """How a command ended. A non-zero exit code is a result, and no exception."""

    exit_code: int
    """128 + n if signal n killed it, 127 if the program does not exist, 126 if it cannot be executed."""
    stdout: bytes
    """Standard output; its middle is missing if `truncated`."""
    stderr: bytes
    """Standard error; its middle is missing if `truncated`."""
    result: sandbox_pb2.ExecResult
    """The result in the protocol, without the output."""

    @property
    def ok(self) -> bool:
        """Whether the command exited with 0 within its time."""
        return self.exit_code == 0 and not self.timed_out

    @property
    def text(self) -> str:
        """Standard output as UTF-8; other bytes are replaced."""
        return self.stdout.decode(errors="replace")

    @property
    def error_text(self) -> str:
        """Standard error as UTF-8; other bytes are replaced."""
        return self.stderr.decode(errors="replace")

    @property
    def timed_out(self) -> bool:
        """Whether the command was killed at its `timeout`."""
        return self.result.timed_out

    @property
    def oom(self) -> bool:
        """Whether a process of the sandbox was killed for lack of memory meanwhile."""
        return self.result.oom

    @property
    def truncated(self) -> bool:
        """Whether output is missing, since it exceeds `max_output_bytes`."""
        return self.result.stdout_bytes > len(self.stdout) or self.result.stderr_bytes > len(self.stderr)


@dataclass(frozen=True)
class Output:
    """A piece of a running command's output."""

    stream: Literal["stdout", "stderr"]
    data: bytes
    skipped: int = 0
    """Bytes before this piece that are lost, since the command printed more than is stored while nobody read."""

    @property
    def text(self) -> str:
        """The piece as UTF-8; other bytes are replaced, also those of a character that the next piece continues."""
        return self.data.decode(errors="replace")


class AsyncSandboxes:
    """The sandboxes of a project."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create(
        self,
        *,
        driver: str = "",
        image: str = "",
        files: Mapping[str, Content] | None = None,
        setup: str = "",
        env: Mapping[str, str] | None = None,
        workdir: str = "",
        user: str = "",
        labels: Mapping[str, str] | None = None,
        lease: float | None = None,
        timeout: float | None = None,
        key: str | None = None,
        spec: sandbox_pb2.SandboxSpec | None = None,
    ) -> AsyncSandbox:
        """Creates a sandbox, which is usable when this returns.

        As a context manager it is deleted at the end of the block.

        Args:
            driver: `local` or `docker`; default: the server's.
            image: Image of container drivers.
            files: Files to place, by path; relative paths start in the working directory.
            setup: A script to run before the sandbox is usable. If it fails, this raises SandboxSetupFailed with its
                output.
            env: Environment of every command.
            workdir: Working directory.
            user: User of commands.
            labels: Labels, for lists.
            lease: Seconds that the sandbox lives without a sign of life of this client, which renews it until `delete`
                or its own end; default 600.
            timeout: Seconds for the creation; default 120, and the bound of the set-up script.
            key: A key of your own: creating again with it returns the same sandbox. A cancelled task then leaves the
                creation running.
            spec: The specification in the protocol, for what the arguments do not say; they override it.
        """
        made = sandbox_pb2.SandboxSpec()
        if spec is not None:
            made.CopyFrom(spec)
        made.MergeFrom(
            sandbox_pb2.SandboxSpec(
                driver=driver,
                image=image,
                setup=setup,
                env=env,
                workdir=workdir,
                user=user,
                labels=labels,
                files=[_file(path, content) for path, content in (files or {}).items()],
            )
        )
        if lease is not None:
            made.lease.CopyFrom(durations.of_seconds(lease))
        request = pb.CreateSandboxRequest(
            parent=self._connection.parent,
            spec=made,
            request_id=key or new_key(),
            timeout=durations.of_seconds(timeout),
        )
        with self._connection.effect((lambda: abandon(self._connection, request)) if key is None else None):
            created = await self._connection.call(lambda stubs: stubs.sandboxes.CreateSandbox, request, timeout=timeout)
        sandbox = AsyncSandbox(self._connection, created)
        sandbox.hold(fresh=True)
        return sandbox

    async def get(self, name: str) -> AsyncSandbox:
        """A sandbox by its name, `projects/…/sandboxes/…`, or the last part of it.

        Its lease is renewed only after `hold`.
        """
        request = pb.GetSandboxRequest(name=self._connection.name("sandboxes", name))
        return AsyncSandbox(
            self._connection, await self._connection.call(lambda stubs: stubs.sandboxes.GetSandbox, request)
        )

    async def drivers(self) -> list[pb.Driver]:
        """The configured drivers, with what isolates their sandboxes on this machine."""
        return list(
            (await self._connection.call(lambda stubs: stubs.sandboxes.ListDrivers, pb.ListDriversRequest())).drivers
        )

    async def list(self) -> list[AsyncSandbox]:
        """All sandboxes, newest first. Their leases are renewed only after `hold`."""
        request = pb.ListSandboxesRequest(parent=self._connection.parent, page_size=1000)
        pages = self._connection.pages(lambda stubs: stubs.sandboxes.ListSandboxes, request)
        return [AsyncSandbox(self._connection, found) async for page in pages for found in page.sandboxes]


async def abandon(connection: Connection, creation: pb.CreateSandboxRequest) -> None:
    """Stops a creation, and deletes the sandbox if it has been made already."""
    cancel = pb.CancelSandboxRequest(parent=connection.parent, request_id=creation.request_id)
    if (await connection.call(lambda stubs: stubs.sandboxes.CancelSandbox, cancel)).already_done:
        # With the same key it is the same one.
        made = await connection.call(lambda stubs: stubs.sandboxes.CreateSandbox, creation)
        await AsyncSandbox(connection, made).delete()


class AsyncSandbox:
    """A sandbox.

    Its methods may run at the same time. If it is deleted or has expired they raise SandboxTerminated, if it has died
    SandboxLost.
    """

    def __init__(self, connection: Connection, sandbox: sandbox_pb2.Sandbox) -> None:
        self._connection = connection
        self.info = sandbox
        """The sandbox as it was created: its specification with all defaults, and its isolation."""

    @property
    def name(self) -> str:
        """`projects/…/sandboxes/…`."""
        return self.info.name

    @property
    def workdir(self) -> str:
        """The absolute path of the working directory."""
        return self.info.workdir

    def __repr__(self) -> str:
        return f"<sandbox {self.name}>"

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connection.surely(self.delete())

    def hold(self, *, fresh: bool = False) -> None:
        """Renews the lease from now on, until `delete` or the client's end: at once, unless it is fresh."""
        self._connection.leases.hold(self.name, self.info.spec.lease.ToNanoseconds() / 1e9, fresh=fresh)

    async def renew(self, lease: float | None = None) -> None:
        """Renews the lease, from now for so many seconds; default: its own length."""
        request = pb.RenewLeasesRequest(
            parent=self._connection.parent, sandboxes=[self.name], lease=durations.of_seconds(lease)
        )
        response = await self._connection.call(lambda stubs: stubs.sandboxes.RenewLeases, request)
        if response.missing:
            raise SandboxTerminated(f"{self.name} was deleted or has expired", facts={"sandbox": self.name})

    async def delete(self) -> None:
        """Kills its processes and removes it. Deleting it again has no effect."""
        self._connection.leases.drop(self.name)
        await self._connection.call(
            lambda stubs: stubs.sandboxes.DeleteSandbox, pb.DeleteSandboxRequest(name=self.name)
        )

    async def exec(
        self,
        command: Command,
        *,
        input: Content = b"",
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        user: str = "",
        timeout: float | None = None,
        max_output_bytes: int | None = None,
        key: str | None = None,
    ) -> ExecResult:
        """Runs a command and returns its result with all of its output.

        It runs exactly once, also if the connection or the server is lost meanwhile. Cancelling the task kills the
        command.

        Args:
            command: Program and arguments, or a text for `sh -c`.
            input: Standard input, at most 3 MiB. For more, write a file, or `start` with `open_input`.
            env: Added to the sandbox's environment.
            cwd: Working directory.
            user: User name or id.
            timeout: Seconds after which the command is killed with all of its children; the result is then `timed_out`.
            max_output_bytes: Bytes that are kept of each stream, half of them from its end; default 10 MiB, at most 64
                MiB.
            key: A key of your own: a command with a key that was used before returns that one's result, and a
                cancelled task leaves the command running.
        """
        request = self._request(command, input, env, cwd, user, timeout, max_output_bytes, key)
        if key is not None:
            return await self._exec(request)
        with self._connection.effect(lambda: self._cancel(request.request_id)):
            try:
                return await self._exec(request)
            finally:
                self._connection.later(self._release(request.request_id))

    async def _exec(self, request: pb.ExecRequest) -> ExecResult:
        result = (await self._connection.call(lambda stubs: stubs.sandboxes.Exec, request)).result
        bound = request.spec.max_output_bytes or 10 << 20
        if len(result.stdout) < min(result.stdout_bytes, bound) or len(result.stderr) < min(result.stderr_bytes, bound):
            return await self._rest(request.request_id, result)
        return _result(result, result.stdout, result.stderr)

    async def _rest(self, key: str, result: sandbox_pb2.ExecResult) -> ExecResult:
        """The result with output that is too large for one message."""
        process = AsyncProcess(self, pb.StreamExecRequest(sandbox=self.name, request_id=key), own_key=True)
        kept = {"stdout": bytearray(), "stderr": bytearray()}
        async for piece in process:
            kept[piece.stream] += piece.data
        return _result(result, bytes(kept["stdout"]), bytes(kept["stderr"]))

    async def start(
        self,
        command: Command,
        *,
        input: Content = b"",
        open_input: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        user: str = "",
        timeout: float | None = None,
        max_output_bytes: int | None = None,
        lossless: bool = False,
        key: str | None = None,
    ) -> AsyncProcess:
        """Starts a command, whose output is then iterated over. The other arguments are those of `exec`.

        Args:
            command: Program and arguments, or a text for `sh -c`.
            input: Standard input at the beginning.
            open_input: Whether standard input stays open for `write`.
            env: Added to the sandbox's environment.
            cwd: Working directory.
            user: User name or id.
            timeout: Seconds after which the command is killed.
            max_output_bytes: Bytes of output that are kept for a reader who is late.
            lossless: Whether the command has to wait for a reader who is late, in place of its output being skipped.
            key: A key of your own: starting again with it attaches to the command, and leaving the block does not kill
                it.
        """
        run = self._request(command, input, env, cwd, user, timeout, max_output_bytes, key)
        run.spec.stdin_open = open_input
        request = pb.StreamExecRequest(sandbox=self.name, request_id=run.request_id, spec=run.spec, lossless=lossless)
        process = AsyncProcess(self, request, own_key=key is not None)
        with self._connection.effect(process.kill if key is None else None):
            await process._begin()
        return process

    async def read(self, path: str, *, max_bytes: int = 100 << 20, user: str = "") -> bytes:
        """The bytes of a file. A file of more than `max_bytes` raises OutputLimit; `download` takes any size."""
        request = pb.DownloadFileRequest(sandbox=self.name, path=path, max_bytes=max_bytes, user=user)
        content = bytearray()

        def reopen(stubs: Stubs) -> Stream[pb.DownloadFileResponse]:
            content.clear()  # The file may have changed since the lost connection.
            return stubs.sandboxes.DownloadFile(request, metadata=self._connection.metadata())

        async for piece in self._connection.follow(reopen):
            content += piece.chunk
        return bytes(content)

    async def read_text(self, path: str, *, max_bytes: int = 100 << 20, user: str = "") -> str:
        """The text of a file, which is UTF-8."""
        return (await self.read(path, max_bytes=max_bytes, user=user)).decode()

    async def write(self, path: str, content: Content, *, mode: int | None = None, user: str = "") -> None:
        """Replaces a file of any size: readers see the old content or the new. Missing folders are created.

        `mode` are permission bits, such as 0o755; default 0o644, or the old file's.
        """
        body = content.encode() if isinstance(content, str) else content
        if len(body) > UNARY_BYTES:
            await self._upload(path, body, mode, user)
            return
        request = pb.WriteFileRequest(sandbox=self.name, path=path, content=body, mode=mode or 0, user=user)
        await self._connection.call(lambda stubs: stubs.sandboxes.WriteFile, request)

    async def _upload(self, path: str, body: bytes | Path, mode: int | None, user: str) -> None:
        async def requests() -> AsyncIterator[pb.UploadFileRequest]:
            yield pb.UploadFileRequest(sandbox=self.name, path=path, mode=mode or 0, user=user)
            for chunk in files.chunks(body):
                yield pb.UploadFileRequest(chunk=chunk)

        await self._connection.upload(lambda stubs: stubs.sandboxes.UploadFile, requests)

    async def list_files(self, path: str = ".", *, max_depth: int = 1, user: str = "") -> list[sandbox_pb2.FileInfo]:
        """The files and folders below a folder, by path."""
        request = pb.ListFilesRequest(sandbox=self.name, path=path, max_depth=max_depth, page_size=1000, user=user)
        pages = self._connection.pages(lambda stubs: stubs.sandboxes.ListFiles, request)
        return [file async for page in pages for file in page.files]

    async def remove(self, path: str, *, recursive: bool = False, user: str = "") -> None:
        """Removes a file, or with `recursive` a folder and all in it."""
        await self._connection.call(
            lambda stubs: stubs.sandboxes.RemoveFile,
            pb.RemoveFileRequest(sandbox=self.name, path=path, recursive=recursive, user=user),
        )

    async def upload(self, source: str | os.PathLike[str], target: str, *, user: str = "") -> None:
        """Copies a file, or a folder with all files in it, from this machine to a path in the sandbox.

        Files may be of any size. Empty folders are left out.
        """
        root = Path(source)
        paths = sorted(p for p in root.rglob("*") if p.is_file()) if root.is_dir() else [root]
        for path in paths:
            inner = str(PurePosixPath(target, *path.relative_to(root).parts))
            status = path.stat()
            body = path if status.st_size > UNARY_BYTES else path.read_bytes()
            if isinstance(body, bytes):
                await self.write(inner, body, mode=status.st_mode & 0o777, user=user)
            else:
                await self._upload(inner, body, status.st_mode & 0o777, user)

    async def download(self, source: str, target: str | os.PathLike[str], *, user: str = "") -> None:
        """Copies a file, or a folder with all in it, from the sandbox to a path on this machine.

        Files may be of any size. Each is written under another name beside its target and takes the target's place when
        it is complete. An existing folder gets a file under the file's own name. Of a folder it copies files and
        folders, and leaves out links.
        """
        path = Path(target)
        try:
            entries = await self.list_files(source, max_depth=LISTED_LEVELS, user=user)
        except (InvalidPath, FileNotFound):
            own = PurePosixPath(source).name if path.is_dir() else ""
            await self._download(source, path / own, user)
        else:
            path.mkdir(parents=True, exist_ok=True)
            await self._download_folder(source, path, entries, user)

    async def _download_folder(
        self, source: str, folder: Path, entries: Sequence[sandbox_pb2.FileInfo], user: str
    ) -> None:
        for entry in entries:
            path, inner = str(PurePosixPath(source, entry.path)), folder / entry.path
            if not inner.resolve().is_relative_to(folder.resolve()):
                continue  # A link on this machine leads elsewhere.
            if entry.type == sandbox_pb2.FILE_TYPE_DIRECTORY:
                inner.mkdir(parents=True, exist_ok=True)
                if len(inner.relative_to(folder).parts) == LISTED_LEVELS:
                    below = await self.list_files(path, max_depth=LISTED_LEVELS, user=user)
                    await self._download_folder(path, inner, below, user)
            elif entry.type == sandbox_pb2.FILE_TYPE_FILE:
                inner.parent.mkdir(parents=True, exist_ok=True)
                await self._download(path, inner, user)
                inner.chmod(entry.mode & 0o777)

    async def _download(self, source: str, target: Path, user: str) -> None:
        request = pb.DownloadFileRequest(sandbox=self.name, path=source, max_bytes=ANY_SIZE, user=user)
        with files.replacing(target) as file:

            def reopen(stubs: Stubs) -> Stream[pb.DownloadFileResponse]:
                file.restart()  # The source may have changed since the lost connection.
                return stubs.sandboxes.DownloadFile(request, metadata=self._connection.metadata())

            async for piece in self._connection.follow(reopen):
                file.write(piece.chunk)

    def _request(
        self,
        command: Command,
        input: Content,
        env: Mapping[str, str] | None,
        cwd: str,
        user: str,
        timeout: float | None,
        max_output_bytes: int | None,
        key: str | None,
    ) -> pb.ExecRequest:
        spec = sandbox_pb2.ExecSpec(
            argv=["sh", "-c", command] if isinstance(command, str) else command,
            stdin=input.encode() if isinstance(input, str) else input,
            env=env,
            cwd=cwd,
            user=user,
            timeout=durations.of_seconds(timeout),
            max_output_bytes=max_output_bytes,
        )
        return pb.ExecRequest(sandbox=self.name, request_id=key or new_key(), spec=spec)

    async def _cancel(self, key: str) -> None:
        await self._connection.call(
            lambda stubs: stubs.sandboxes.CancelExec, pb.CancelExecRequest(sandbox=self.name, request_id=key)
        )

    async def _release(self, key: str) -> None:
        await self._connection.call(
            lambda stubs: stubs.sandboxes.ReleaseExec, pb.ReleaseExecRequest(sandbox=self.name, request_ids=[key])
        )


class AsyncProcess:
    """A running command. Iterating over it yields its output, in order, until it ends.

    After a lost connection the iteration continues where it was. Leaving the block of `async with` kills a command
    that still runs.
    """

    def __init__(self, sandbox: AsyncSandbox, request: pb.StreamExecRequest, *, own_key: bool) -> None:
        self._sandbox = sandbox
        self._request = request
        self._own_key = own_key
        self._written = 0
        self._result: ExecResult | None = None
        self._events = self._follow()
        self.pid = 0
        """Its process id inside the sandbox."""

    @property
    def key(self) -> str:
        """The command's key."""
        return self._request.request_id

    async def __aenter__(self) -> AsyncProcess:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        connection = self._sandbox._connection
        if not self._own_key:
            if self._result is None:
                await connection.surely(self.kill())
            connection.later(self._sandbox._release(self.key))
        if not self._events.ag_running:  # type: ignore[attr-defined]  # A task that still reads sees the end of the output.
            await self._events.aclose()

    async def _follow(self) -> AsyncGenerator[pb.StreamExecResponse, None]:
        connection = self._sandbox._connection

        def reopen(stubs: Stubs) -> Stream[pb.StreamExecResponse]:
            return stubs.sandboxes.StreamExec(self._request, metadata=connection.metadata())

        async for event in connection.follow(reopen):
            yield event

    async def _begin(self) -> None:
        async for event in self._events:
            if event.HasField("started"):
                self.pid = event.started.pid
                return

    async def __aiter__(self) -> AsyncIterator[Output]:
        async for event in self._events:
            kind = event.WhichOneof("event")
            if kind == "output":
                end = event.output.offset + len(event.output.data)
                if event.output.stream == pb.EXEC_STREAM_STDOUT:
                    self._request.stdout_offset = end
                    yield Output("stdout", event.output.data, event.output.skipped_bytes)
                else:
                    self._request.stderr_offset = end
                    yield Output("stderr", event.output.data, event.output.skipped_bytes)
            elif kind == "ended":
                self._result = _result(event.ended, b"", b"")

    async def wait(self) -> ExecResult:
        """The result once the command has ended, without output. What was not read yet is dropped."""
        async for _ in self:
            pass
        if self._result is None:
            raise RuntimeError("the process was left before its end")
        return self._result

    async def write(self, data: Content, *, eof: bool = False) -> None:
        """Writes to standard input of a command that was started with `open_input`; `eof` closes it after that."""
        body = data.encode() if isinstance(data, str) else data
        for at in range(0, max(len(body), 1), UNARY_BYTES):
            piece = body[at : at + UNARY_BYTES]
            last = at + UNARY_BYTES >= len(body)
            request = pb.WriteExecInputRequest(
                sandbox=self._sandbox.name, request_id=self.key, offset=self._written, data=piece, eof=eof and last
            )
            self._written = (
                await self._sandbox._connection.call(lambda stubs: stubs.sandboxes.WriteExecInput, request)
            ).offset

    async def kill(self) -> None:
        """Kills the command with all of its children."""
        await self._sandbox._cancel(self.key)


def _result(result: sandbox_pb2.ExecResult, stdout: bytes, stderr: bytes) -> ExecResult:
    bare = sandbox_pb2.ExecResult()
    bare.CopyFrom(result)
    bare.ClearField("stdout")
    bare.ClearField("stderr")
    return ExecResult(result.exit_code, stdout, stderr, bare)


def _file(path: str, content: Content) -> sandbox_pb2.FileToPlace:
    if isinstance(content, str):
        return sandbox_pb2.FileToPlace(path=path, text=content)
    return sandbox_pb2.FileToPlace(path=path, content=content)
