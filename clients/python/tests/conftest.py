"""Servers for tests: each runs the program of EVALFLEET_PROGRAM, with a data directory of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from evalfleet import AsyncClient

REPOSITORY = Path(__file__).parents[3]
PROGRAM = os.environ.get("EVALFLEET_PROGRAM") or str(REPOSITORY / "bin" / "evalfleet")
PATIENCE = 60.0
"""Bounds every wait. It is far above all real durations here, so that only a hang reaches it."""


class Server:
    """A server that tests may kill, and start again on the same data."""

    def __init__(self, **env: str) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="evalfleet-py-", dir="/tmp"))  # Sockets lie in it: a short path.
        self.data = self.root / "data"
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.root), **env}
        self._process: subprocess.Popen[str] | None = None
        self.address = "127.0.0.1:0"
        self.killed = False

    def start(self) -> None:
        """Starts it, where it was before if it was started before, and waits until it takes calls."""
        arguments = [PROGRAM, "serve", "--listen", self.address, "--data-dir", str(self.data)]
        self._process = subprocess.Popen(
            arguments, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.root
        )
        assert self._process.stdout is not None
        log = []
        for said in self._process.stdout:
            if said.startswith("serving at "):
                break
            log.append(said)
        else:
            raise AssertionError("the server has ended: " + "".join(log))
        self.address = said.removeprefix("serving at ").partition(";")[0]
        self._reader = threading.Thread(target=_drain, args=[self._process.stdout])
        self._reader.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Keeps it from doing anything for the block."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            os.waitid(os.P_PID, self.pid, os.WSTOPPED)
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kills it as a power cut does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def close(self) -> None:
        """Stops it, and removes its data."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(PATIENCE)
            finally:
                self._process.kill()
                self._reader.join()
        end_sandboxes(self.data)
        shutil.rmtree(self.root)

    @property
    def token(self) -> str:
        return (self.data / "token").read_text().strip()


def end_sandboxes(data: Path) -> None:
    """Ends the sandboxes of a data directory, which outlive their server: nobody comes back for them."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            guest = (process / "cmdline").read_bytes() == b"guestd\0init\0"
            if guest and str(data) in (process / "mountinfo").read_text():
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue  # It has ended, or is another user's.


def _drain(output: IO[str]) -> None:
    """Reads a server's log, which pytest shows with a failed test."""
    with output:
        for line in output:
            sys.stderr.write(line)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One server for all tests that let it live."""
    running = Server()
    try:
        running.start()
        yield running
    finally:
        running.close()


@pytest.fixture
def mortal() -> Iterator[Server]:
    """A server of the test's own, to be killed."""
    running = Server()
    try:
        running.start()
        yield running
    finally:
        running.close()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    """A client of the common server."""
    async with AsyncClient(data_dir=server.data) as made:
        yield made


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Waits until something holds."""

    async def look() -> None:
        while not await holds():
            await asyncio.sleep(0.02)

    await asyncio.wait_for(look(), PATIENCE)
