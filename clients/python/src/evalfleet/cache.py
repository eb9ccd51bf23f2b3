"""The cache of models' answers."""

from __future__ import annotations

from collections.abc import Sequence

from evalfleet.connection import Connection
from evalfleet.model.v1 import model_service_pb2 as pb


class AsyncCache:
    """The cached answers of a project: of calls whose `config` has `cache`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def sizes(self, *models: str) -> dict[str, int]:
        """Bytes by model: of all models, or of those whose name contains one of these."""
        request = pb.GetCacheSizeRequest(parent=self._connection.parent, models=models)
        return dict((await self._connection.call(lambda stubs: stubs.cache.GetCacheSize, request)).bytes)

    async def list(self, *models: str, expired: bool = False) -> list[pb.CacheEntry]:
        """The entries: of all models or of these, all or only the expired ones."""
        request = pb.ListCacheEntriesRequest(
            parent=self._connection.parent, models=models, expired_only=expired, page_size=1000
        )
        pages = self._connection.pages(lambda stubs: stubs.cache.ListCacheEntries, request)
        return [entry async for page in pages for entry in page.entries]

    async def clear(self, model: str = "", *, expired: bool = False, ids: Sequence[str] = ()) -> int:
        """Removes entries, and returns how many: all, those of a model, the expired ones, or those with these ids."""
        request = pb.ClearCacheRequest(parent=self._connection.parent, model=model, expired_only=expired, ids=ids)
        return (await self._connection.call(lambda stubs: stubs.cache.ClearCache, request)).removed
