"""TLS, which a proxy in front of the server provides (docs/deploy.md)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
import trustme
from conftest import Server

from evalfleet import AsyncClient, Worker, exceptions

CA = trustme.CA()
OTHER_CA = trustme.CA()


class Forwarding(grpc.GenericRpcHandler):
    """Forwards every call as bytes."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        def forward(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            metadata = tuple((key, value) for key, value in context.invocation_metadata() if key == "authorization")
            method: Any = self._channel.stream_stream(details.method)
            call = method(requests, metadata=metadata)
            context.add_callback(call.cancel)
            try:
                yield from call
            except grpc.RpcError:
                context.set_trailing_metadata(call.trailing_metadata())
                context.abort(call.code(), call.details())

        return grpc.stream_stream_rpc_method_handler(forward)


@contextlib.contextmanager
def proxy(server: Server, certificate: trustme.LeafCert) -> Iterator[str]:
    """A proxy with TLS in front of a server, and its address."""
    chain = b"".join(part.bytes() for part in certificate.cert_chain_pems)
    with grpc.insecure_channel(server.address) as channel:
        listening = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Forwarding(channel)])
        credentials = grpc.ssl_server_credentials([(certificate.private_key_pem.bytes(), chain)])
        port = listening.add_secure_port("127.0.0.1:0", credentials)
        listening.start()
        try:
            yield f"localhost:{port}"
        finally:
            listening.stop(None).wait()


def trusting(ca: trustme.CA) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(ca.cert_pem.bytes())


async def test_a_server_behind_tls(server: Server) -> None:
    with proxy(server, CA.issue_cert("localhost")) as address:
        async with AsyncClient(address, token=server.token, credentials=trusting(CA)) as client:
            pieces = [piece.text async for piece in client.models.stream("mockllm/model", "Hi")]
            assert "".join(pieces) == "Default output from mockllm/model"
            with pytest.raises(exceptions.ModelNotFound):
                await client.models.generate("nosuch/model", "Hi")


@pytest.mark.parametrize(
    ("host", "ca", "says"),
    [("localhost", OTHER_CA, "CERTIFICATE_VERIFY_FAILED"), ("other.example", CA, "Hostname")],
    ids=["another CA", "another host"],
)
async def test_a_certificate_that_is_not_trusted_is_told_at_once(
    server: Server, host: str, ca: trustme.CA, says: str
) -> None:
    with proxy(server, CA.issue_cert(host)) as address:
        async with AsyncClient(address, token=server.token, credentials=trusting(ca), patience=600) as client:
            with pytest.raises(exceptions.ServerUntrusted, match=says):
                await client.evals.list()
            with pytest.raises(exceptions.ServerUntrusted, match=says):
                await Worker(client=client).serve()


async def test_a_server_without_tls_is_told_from_one_that_is_away(server: Server) -> None:
    async with AsyncClient(server.address, token=server.token, credentials=trusting(CA), patience=600) as client:
        with pytest.raises(exceptions.ServerUntrusted, match="WRONG_VERSION_NUMBER"):
            await client.evals.list()
