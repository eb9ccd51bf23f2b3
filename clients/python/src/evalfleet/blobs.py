"""Bodies of any size, which are stored by their content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from evalfleet.blob.v1 import blob_service_pb2 as pb
from evalfleet.connection import Connection
from evalfleet.content.v1.content_pb2 import BlobRef
from evalfleet.files import chunks


class AsyncBlobs:
    """The bodies of a project: datasets, files of sandboxes, large answers.

    A body is stored once, under the SHA-256 of its bytes.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def put(self, body: bytes | str | os.PathLike[str], *, media_type: str = "") -> BlobRef:
        """Stores bytes, a text as UTF-8, or the file at a path. Storing a body again has no effect."""
        content = body.encode() if isinstance(body, str) else body if isinstance(body, bytes) else Path(body)
        digest = hashlib.sha256()
        for chunk in chunks(content):
            digest.update(chunk)
        first = pb.UploadBlobRequest(parent=self._connection.parent, media_type=media_type, hash=digest.hexdigest())

        async def requests() -> AsyncIterator[pb.UploadBlobRequest]:
            yield first
            for chunk in chunks(content):
                yield pb.UploadBlobRequest(chunk=chunk)

        return await self._connection.upload(lambda stubs: stubs.blobs.UploadBlob, requests)

    async def get(self, hash: str) -> bytes:
        """The bytes of a body."""
        return b"".join([chunk async for chunk in self.stream(hash)])

    async def stream(self, hash: str, *, offset: int = 0) -> AsyncIterator[bytes]:
        """The bytes of a body in chunks, from an offset. It continues after a lost connection."""
        request = pb.DownloadBlobRequest(parent=self._connection.parent, hash=hash, offset=offset)
        async for piece in self._connection.follow(
            lambda stubs: stubs.blobs.DownloadBlob(request, metadata=self._connection.metadata())
        ):
            request.offset += len(piece.chunk)
            yield piece.chunk
