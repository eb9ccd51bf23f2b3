"""Tools that agents can use."""

from __future__ import annotations

from evalfleet.connection import Connection
from evalfleet.tool.v1.tool_pb2 import ToolDefinition
from evalfleet.tool.v1.tool_service_pb2 import ListToolsRequest


class AsyncTools:
    """The tools that tasks and runs may name: the server's own, and those that workers serve now."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> list[ToolDefinition]:
        """The tools by name, with their descriptions and the schemas of their parameters."""
        request = ListToolsRequest(parent=self._connection.parent, page_size=1000)
        pages = self._connection.pages(lambda stubs: stubs.tools.ListTools, request)
        return [tool async for page in pages for tool in page.tools]
