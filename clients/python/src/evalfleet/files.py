"""Files of this machine that are sent and received in chunks, so that their size costs no memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 1 << 20


def chunks(body: bytes | Path) -> Iterator[bytes]:
    """Bytes, or the content of a file, in chunks."""
    if isinstance(body, bytes):
        for start in range(0, len(body), CHUNK_BYTES):
            yield body[start : start + CHUNK_BYTES]
        return
    with body.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of the target at the end of the block, unless the block fails."""
    part = target.with_name(f".{target.name}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def restart(file: BinaryIO) -> None:
    """Empties a file that is written from its beginning again."""
    file.seek(0)
    file.truncate()
