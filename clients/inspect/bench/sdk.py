"""The calls of models.py through the openai SDK. OPENAI_BASE_URL and OPENAI_API_KEY are the server's."""

from __future__ import annotations

import asyncio
from typing import Any

from openai import AsyncOpenAI
from turns import turns


async def main() -> None:
    """Makes calls in turns."""
    async with AsyncOpenAI() as client:
        asked: Any = [{"role": "user", "content": "q" * 1000}]
        await turns(8, lambda: client.chat.completions.create(model="mockllm/model", messages=asked))


asyncio.run(main())
