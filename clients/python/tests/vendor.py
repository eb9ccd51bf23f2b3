"""A stand-in for OpenAI's API: it compacts conversations and takes batches, which it answers once they are released."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Document = dict[str, Any]


class Vendor:
    """The API, on a thread of its own."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.received: list[tuple[str, bytes]] = []
        self._batches: list[Document] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self.answer))
        self._thread = threading.Thread(target=self._http.serve_forever)
        self._thread.start()

    @property
    def env(self) -> dict[str, str]:
        """The environment of a server that takes this for OpenAI."""
        return {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"http://127.0.0.1:{self._http.server_port}/v1"}

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def answer(self, method: str, path: str, body: bytes) -> Document | None:
        """The answer to a request; None if there is no such thing."""
        self.received.append((f"{method} {path}", body))
        match method, *path.removeprefix("/v1/").split("/"):
            case "POST", "responses", "compact":
                sealed = {"id": "cmp_1", "type": "compaction", "encrypted_content": "c2VhbGVk"}
                return {"id": "resp_1", "object": "response.compaction", "created_at": 1, "output": [sealed]}
            case "GET", "models":
                return {"object": "list", "data": [{"id": "gpt-4o", "object": "model"}]}
            case "POST", "files":
                return {"id": "file-1"}
            case "POST", "batches":
                batch = {**json.loads(body), "id": f"batch-{len(self._batches)}", "created_at": 1}
                self._batches.append(batch)
                return self._shown(batch)
            case "GET", "batches":
                return {"data": [self._shown(batch) for batch in self._batches]}
            case "POST", "batches", _, "cancel":
                self.released.set()
                return self._shown(self._batches[0])
            case "GET", "batches", _:
                return self._shown(self._batches[0])
        return None

    def _shown(self, batch: Document) -> Document:
        return {**batch, "status": "cancelled" if self.released.is_set() else "in_progress"}


def _handler(answer: Callable[[str, str, bytes], Document | None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            document = answer(self.command, self.path.partition("?")[0], body)
            content = json.dumps(document or {"error": {"message": "not found"}}).encode()
            self.send_response(404 if document is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _answer  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    return Handler
