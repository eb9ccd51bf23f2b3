"""Calls by many callers, in turns that another program asks for.

Each line of the standard input is how long a turn lasts, in seconds. It is answered by a line of JSON: how many `calls`
ended, in how many `seconds`, and with how many seconds of this process's own processor time (`cpu`).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any


async def turns(callers: int, call: Callable[[], Awaitable[Any]]) -> None:
    """Makes calls until the standard input ends. The calls under way at the end of a turn are cancelled."""
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await _turn(callers, call, float(line))), flush=True)


async def _turn(callers: int, call: Callable[[], Awaitable[Any]], seconds: float) -> dict[str, float]:
    calls = 0

    async def caller() -> None:
        nonlocal calls
        while True:
            await call()
            calls += 1

    began, used = time.monotonic(), time.process_time()
    tasks = {asyncio.create_task(caller()) for _ in range(callers)}
    failed: set[asyncio.Task[None]] = set()
    while not failed and (calls == 0 or time.monotonic() < began + seconds):
        left = max(began + seconds - time.monotonic(), 0.01)
        failed, _ = await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
    done = {"calls": calls, "seconds": time.monotonic() - began, "cpu": time.process_time() - used}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in failed:
        task.result()
    return done
