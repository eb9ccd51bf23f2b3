"""Waiting for work, with a bound in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

Result = TypeVar("Result")


async def within(timeout: float | None, work: Awaitable[Result]) -> Result:
    """Waits for work. After `timeout` seconds it ends the work, and raises asyncio.TimeoutError.

    A cancellation ends the work and passes on as it came. asyncio.wait_for loses one that comes together with the
    result (before Python 3.12). Awaiting a call of gRPC raises a CancelledError of its own in its place; bounds that
    know their cancellation again, such as those of anyio, would let that one pass and end more than they bound.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=timeout)
        if not task.done():
            raise asyncio.TimeoutError
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
