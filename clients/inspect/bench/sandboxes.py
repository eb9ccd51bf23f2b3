"""Commands of 64 callers in one container, through a sandbox provider of Inspect.

python sandboxes.py PROVIDER COMPOSE, with `evalfleet` or `docker`, and a compose file for the container.
"""

from __future__ import annotations

import asyncio
import sys

from inspect_ai.util._sandbox.docker import docker
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from turns import turns

import evalfleet_inspect._registry  # noqa: F401 - inspect_ai finds the names in it, as by its entry point


async def _any_version() -> None:
    """Inspect asks for an engine later than Debian's. `docker compose exec`, which is measured, is the same there."""


docker.validate_prereqs = _any_version


async def main(provider: str, compose: str) -> None:
    """Makes the container, runs commands in turns, and removes it."""
    kind = registry_find_sandboxenv(provider)
    await kind.task_init("bench", compose)
    try:
        made = await kind.sample_init("bench", compose, {})
        sandbox = made["default"]

        async def command() -> None:
            result = await sandbox.exec(["true"])
            if not result.success:
                raise RuntimeError(result.stderr)

        try:
            await turns(64, command)
        finally:
            await kind.sample_cleanup("bench", compose, made, False)
    finally:
        await kind.task_cleanup("bench", compose, True)


asyncio.run(main(*sys.argv[1:]))
