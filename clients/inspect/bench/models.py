"""Calls of a scripted model by 8 callers, through Inspect's model API `evalfleet`."""

from __future__ import annotations

import asyncio

from inspect_ai.model import ChatMessageUser, get_model
from turns import turns

import evalfleet_inspect._registry  # noqa: F401 - inspect_ai finds the names in it, as by its entry point


async def main() -> None:
    """Makes calls in turns."""
    model = get_model("evalfleet/mockllm/model")
    asked = [ChatMessageUser(content="q" * 1000)]
    await turns(8, lambda: model.api.generate(asked, [], "auto", model.config))


asyncio.run(main())
