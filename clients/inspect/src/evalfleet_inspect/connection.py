"""One connection to the server for each event loop of the process, shared by models and sandboxes."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import sniffio
from evalfleet.connection import Connection
from evalfleet.discovery import Place
from inspect_ai._util.error import PrerequisiteError

Result = TypeVar("Result")

DEFAULT_PATIENCE = 60.0
"""Seconds for which calls are repeated while the server is away."""


@dataclass(frozen=True)
class Target:
    """Which server, and which project there. What is unset comes from the environment, as for the command line."""

    server: str | None = None
    """`host:port`, or EVALFLEET_SERVER. Default: the server that holds the data directory of this machine."""
    token_file: str | None = None
    """A file with the token, or EVALFLEET_TOKEN_FILE, or the token itself in EVALFLEET_TOKEN."""
    project: str | None = None
    """The project, or EVALFLEET_PROJECT; default `default`."""
    patience: float | None = None
    """Seconds, or EVALFLEET_PATIENCE; default 60."""

    def open(self) -> Connection:
        """A connection of its own, which is dialled when it is first used."""
        return Connection(
            Place(server=self.server, token_file=self.token_file),
            project=self.project or os.environ.get("EVALFLEET_PROJECT") or "default",
            patience=self._patience(),
            start=False,
            credentials=None,
        )

    def _patience(self) -> float:
        if self.patience is not None:
            return self.patience
        text = os.environ.get("EVALFLEET_PATIENCE", "")
        try:
            return float(text) if text else DEFAULT_PATIENCE
        except ValueError:
            raise PrerequisiteError(f"EVALFLEET_PATIENCE is a number of seconds, not {text!r}") from None


_connections: dict[asyncio.AbstractEventLoop, dict[Target, Connection]] = {}


def connection(target: Target) -> Connection:
    """The connection of the running event loop to a target."""
    if sniffio.current_async_library() != "asyncio":
        raise PrerequisiteError("evalfleet needs Inspect's asyncio backend: unset INSPECT_ASYNC_BACKEND")
    for ended in [loop for loop in _connections if loop.is_closed()]:
        del _connections[ended]  # With the last use of a connection its socket closes.
    of_loop = _connections.setdefault(asyncio.get_running_loop(), {})
    if target not in of_loop:
        of_loop[target] = target.open()
    return of_loop[target]


def apart(target: Target, work: Callable[[Connection], Coroutine[Any, Any, Result]]) -> Result:
    """Does work on a connection of its own, in a thread of its own, and waits for it.

    It is for callers that are not asynchronous, within a running event loop or not.
    """

    async def whole() -> Result:
        own = target.open()
        try:
            return await work(own)
        finally:
            await own.close()

    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, whole()).result()
