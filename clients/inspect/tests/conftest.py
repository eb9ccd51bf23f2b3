"""A server of the built program for the tests, and sandboxes of it.

EVALFLEET_PROGRAM is the program; default: bin/evalfleet of the repository. EVALFLEET_TEST_DRIVERS lists the drivers to
test, and DOCKER_HOST names the engine of `docker`; default: local alone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
PROGRAM = os.environ.get("EVALFLEET_PROGRAM", str(REPOSITORY / "bin/evalfleet"))
DRIVERS = os.environ.get("EVALFLEET_TEST_DRIVERS", "local").split(",")
START_BOUND = 120.0
"""Seconds for the start of a server. It takes one, so that only a hang reaches the bound."""
DOCKER_IMAGE = os.environ.get("EVALFLEET_TEST_IMAGE", "")


class Server:
    """A server of its own, which can be killed and started again at the same address with the same data."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.said: list[str] = []
        self.address = "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--data-dir", str(self.data), "--listen", self.address],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("EVALFLEET_")},
        )
        said = self.process.stderr
        assert said is not None
        late = threading.Timer(START_BOUND, self.process.kill)
        late.start()
        for line in said:
            self.said.append(line)
            if line.startswith("serving at "):
                self.address = line.split()[2].rstrip(";")
                threading.Thread(target=lambda: self.said.extend(said), daemon=True).start()
                late.cancel()
                return
        late.cancel()
        raise AssertionError(f"the server did not start within {START_BOUND} s: {self.said}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs to find it."""
        return {"EVALFLEET_SERVER": self.address, "EVALFLEET_TOKEN_FILE": str(self.data / "token")}

    def run(self, *arguments: str) -> str:
        """What a command prints."""
        command = [PROGRAM, "--server", self.address, "--token-file", str(self.data / "token"), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def sandboxes(self) -> list[str]:
        """The sandboxes that live, by id."""
        return [line.split()[0] for line in self.run("sandbox", "ls").splitlines()[1:]]


async def until(condition: Callable[[], Awaitable[bool]], every: float = 0.02, within: float = 50) -> None:
    """Waits for a condition, and fails if it does not come true in so many seconds."""
    begun = time.monotonic()
    while not await condition():
        assert time.monotonic() - begun < within, f"{condition.__qualname__} does not hold after {within} s"
        await asyncio.sleep(every)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests that do not hurt it."""
    one = Server(tmp_path_factory.mktemp("server"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in one.environment.items():
            patch.setenv(name, value)
        yield one
    one.stop()


@pytest.fixture
def own_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that a test may kill."""
    one = Server(tmp_path)
    for name, value in one.environment.items():
        monkeypatch.setenv(name, value)
    yield one
    if one.process.poll() is None:
        one.stop()
