"""The client of asyncio programs."""

from __future__ import annotations

import os
from types import TracebackType

import grpc

from evalfleet.agent.v1.admin_service_pb2 import GetServerInfoRequest, ServerInfo
from evalfleet.batches import AsyncBatches
from evalfleet.blobs import AsyncBlobs
from evalfleet.cache import AsyncCache
from evalfleet.connection import Connection, Stubs
from evalfleet.discovery import Place
from evalfleet.evals import AsyncEvals
from evalfleet.limits import AsyncLimits
from evalfleet.models import AsyncModels
from evalfleet.runs import AsyncRuns
from evalfleet.sandboxes import AsyncSandboxes
from evalfleet.tools import AsyncTools


class AsyncClient:
    """A client of one server, for asyncio programs. It connects on first use, and belongs to one event loop.

        async with AsyncClient() as client:
            print(await client.models.generate("openai/gpt-4o-mini", "Why is the sky blue?"))

    It finds server and token as the command line does: the server that holds the data directory, or EVALFLEET_SERVER
    with EVALFLEET_TOKEN or EVALFLEET_TOKEN_FILE. A process that was forked needs a client of its own.

    Args:
        server: `host:port`; default EVALFLEET_SERVER, else the server that holds the data directory.
        token: The token; default EVALFLEET_TOKEN.
        token_file: A file with the token; default EVALFLEET_TOKEN_FILE, else `token` in the data directory.
        data_dir: The data directory; default EVALFLEET_DATA_DIR, else that of the command line.
        project: The project of everything that this client makes and finds.
        start: Whether to start `evalfleet serve` if no server holds the data directory; as a text, the path of the
            program. `close` stops that server.
        patience: Seconds for which calls bear with a server that is away or restarts, before they raise
            ServerUnreachable.
        credentials: Credentials of TLS, such as `grpc.ssl_channel_credentials()`, for a proxy with TLS in front of the
            server; default: the connection is not encrypted, which is right on one machine.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        project: str = "default",
        start: bool | str = False,
        patience: float = 30.0,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        place = Place(server, token, token_file, data_dir)
        self._connection = Connection(place, project=project, patience=patience, start=start, credentials=credentials)
        self.models = AsyncModels(self._connection)
        self.sandboxes = AsyncSandboxes(self._connection)
        self.evals = AsyncEvals(self._connection)
        self.runs = AsyncRuns(self._connection)
        self.tools = AsyncTools(self._connection)
        self.blobs = AsyncBlobs(self._connection)
        self.batches = AsyncBatches(self._connection)
        self.limits = AsyncLimits(self._connection)
        self.cache = AsyncCache(self._connection)

    async def __aenter__(self) -> AsyncClient:
        await self._connection.stubs()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection. Sandboxes of this client live on until their leases end. Closing again has no effect."""
        await self._connection.close()

    async def server(self) -> str:
        """The server's address."""
        return (await self._connection.server()).address

    async def info(self) -> ServerInfo:
        """What the server is: its version, its services, its default driver."""
        return await self._connection.call(lambda stubs: stubs.admin.GetServerInfo, GetServerInfoRequest())

    async def stubs(self) -> Stubs:
        """The generated stubs, for calls that this package does not wrap.

        Pass `metadata=client.metadata()` to each. Errors are those of gRPC.
        """
        return await self._connection.stubs()

    def metadata(self) -> list[tuple[str, str]]:
        """The metadata of a call of a stub: the token."""
        return self._connection.metadata()
