"""Results that the server keeps under a key until they are released."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from evalfleet.connection import Connection

GROUP = 32
"""Results that are released together."""


class Releases:
    """Lets the server forget the results of keys, in groups and in the background.

    What is left at the end, the server forgets by itself.
    """

    def __init__(self, release: Callable[[Connection, list[str]], Coroutine[Any, Any, Any]]) -> None:
        self._release = release
        self._keys: list[str] = []

    def add(self, server: Connection, key: str) -> None:
        """A result that is no longer needed."""
        self._keys.append(key)
        if len(self._keys) >= GROUP:
            keys, self._keys = self._keys, []
            server.later(self._release(server, keys))
