"""Leases of sandboxes, which live for as long as their client renews them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING

from evalfleet import waiting
from evalfleet._error import EvalfleetError
from evalfleet.sandbox.v1 import sandbox_service_pb2 as pb

if TYPE_CHECKING:
    from evalfleet.connection import Connection

RENEWED_AFTER = 1 / 3
"""The part of a lease after which it is renewed, so that two attempts may fail."""
MOST_OF_A_CALL = 500
"""Sandboxes that one call renews at most."""

_log = logging.getLogger("evalfleet.leases")


class Leases:
    """Renews the leases that a client holds, all of them together whenever one is due."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._held: dict[str, float] = {}
        self._due = 0.0
        self._changed = asyncio.Event()
        self._renewal: asyncio.Task[None] | None = None

    def hold(self, sandbox: str, seconds: float, *, fresh: bool) -> None:
        """Renews a lease of so many seconds from now on, until `drop`: at once, unless it is fresh."""
        due = time.monotonic() + (seconds * RENEWED_AFTER if fresh else 0.0)
        self._due = min(self._due, due) if self._held else due
        self._held[sandbox] = seconds
        self._changed.set()
        if self._renewal is None:
            self._renewal = self._connection.background(self._renew_when_due())

    def drop(self, sandbox: str) -> None:
        """Renews a lease no more."""
        self._held.pop(sandbox, None)
        self._changed.set()

    async def _renew_when_due(self) -> None:
        while self._held:
            self._changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await waiting.within(max(0.0, self._due - time.monotonic()), self._changed.wait())
                continue
            self._due = time.monotonic() + min(self._held.values()) * RENEWED_AFTER
            await self._renew()
        self._renewal = None

    async def _renew(self) -> None:
        names = list(self._held)
        for start in range(0, len(names), MOST_OF_A_CALL):
            request = pb.RenewLeasesRequest(
                parent=self._connection.parent, sandboxes=names[start : start + MOST_OF_A_CALL]
            )
            try:
                response = await self._connection.call(lambda stubs: stubs.sandboxes.RenewLeases, request)
            except EvalfleetError as error:
                _log.warning("leases of sandboxes are not renewed: %s", error)
                continue
            for gone in response.missing:
                self._held.pop(gone, None)
