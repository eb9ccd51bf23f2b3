"""Batches of model calls at their providers."""

from __future__ import annotations

from evalfleet.connection import Connection
from evalfleet.model.v1 import batch_service_pb2 as pb


class AsyncBatches:
    """The batches of a project: model calls whose `config` has `batch`, which providers answer later at a lower price.

    `generate` with such a configuration waits for its answer; with a `key` it can be called again to continue to wait.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> list[pb.Batch]:
        """The batches, newest first: those in flight, and for a week those that have ended."""
        request = pb.ListBatchesRequest(parent=self._connection.parent, page_size=1000)
        pages = self._connection.pages(lambda stubs: stubs.batches.ListBatches, request)
        return [batch async for page in pages for batch in page.batches]

    async def cancel(self, name: str) -> pb.Batch:
        """Has the provider stop a batch, by its name, `projects/…/batches/…`, or the last part of it.

        Answers that the provider has by then are used; the other calls fail. A batch that has ended is unchanged.
        """
        request = pb.CancelBatchRequest(name=self._connection.name("batches", name))
        return await self._connection.call(lambda stubs: stubs.batches.CancelBatch, request)
