"""Files of this machine that are sent and received in chunks, so that their size costs no memory."""

from __future__ import annotations

import contextlib
import uuid
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


class Replacement:
    """A file that is being received. When it is complete it takes the place of `target`."""

    def __init__(self, file: BinaryIO, target: Path) -> None:
        self._file = file
        self.target = target

    def write(self, chunk: bytes) -> None:
        """Adds a chunk at the end."""
        self._file.write(chunk)

    def restart(self) -> None:
        """Empties it, to be received from its beginning again."""
        self._file.seek(0)
        self._file.truncate()


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[Replacement]:
    """A file that takes the place of the target at the end of the block. If the block fails, nothing has changed.

    It is written beside the target. If that is a folder, it is written there, and the block sets the `target` to a path
    in the folder.
    """
    part = (target if target.is_dir() else target.parent) / f".evalfleet-{uuid.uuid4().hex}.part"
    try:
        with part.open("xb") as file:
            replacement = Replacement(file, target)
            yield replacement
        part.replace(replacement.target)
    finally:
        part.unlink(missing_ok=True)
