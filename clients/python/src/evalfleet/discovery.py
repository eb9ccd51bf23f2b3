"""Where the server is: the rules are those of the command line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from evalfleet import waiting
from evalfleet.exceptions import ServerUnreachable, TokenInvalid

_ADDRESS = re.compile(r"(\[[^\]/\s]+\]|[^:/\s]+):\d{1,5}")
"""Host, or an IPv6 address in brackets, and port."""
START_SECONDS = 60.0
"""How long a server that the client starts may take until it takes calls."""


@dataclass(frozen=True)
class Server:
    """A server's address and the token for it."""

    address: str
    token: str = field(repr=False)
    version: str = ""
    """Its build; empty if that is unknown."""


@dataclass(frozen=True)
class Place:
    """Where to look for a server. An argument comes before the environment, and that before the default."""

    server: str | None = None
    """`host:port`, or EVALFLEET_SERVER. Default: the server that holds the data directory."""
    token: str | None = field(default=None, repr=False)
    """The token, or EVALFLEET_TOKEN."""
    token_file: str | os.PathLike[str] | None = None
    """A file with the token, or EVALFLEET_TOKEN_FILE. Default: `token` in the data directory."""
    data_dir: str | os.PathLike[str] | None = None
    """The data directory, or EVALFLEET_DATA_DIR. Default: `evalfleet` in $XDG_DATA_HOME or ~/.local/share."""

    def find(self, env: Mapping[str, str] = os.environ) -> Server:
        """The server, or `ServerUnreachable` if the data directory has none."""
        if address := self.server or env.get("EVALFLEET_SERVER"):
            if not _ADDRESS.fullmatch(address) or int(address.rpartition(":")[2]) > 65535:
                raise ValueError(
                    f"{address!r} is no address of a server; write host:port without a scheme, such as 127.0.0.1:7460"
                )
            return Server(address, self._token(env))
        folder = self.folder(env)
        holder = _holder(folder)
        if holder is None or not holder.get("address"):
            raise ServerUnreachable(
                f"no server runs with the data directory {folder}; "
                "run `evalfleet serve`, pass start=True, or name a server"
            )
        return Server(holder["address"], self._token(env), holder.get("version", ""))

    def starting(self, env: Mapping[str, str] = os.environ) -> bool:
        """Whether a server of the data directory starts, so that it has no address yet."""
        if self.server or env.get("EVALFLEET_SERVER"):
            return False
        holder = _holder(self.folder(env))
        return holder is not None and not holder.get("address")

    def folder(self, env: Mapping[str, str] = os.environ) -> Path:
        """The data directory."""
        if chosen := self.data_dir or env.get("EVALFLEET_DATA_DIR"):
            return Path(chosen).absolute()
        base = env.get("XDG_DATA_HOME", "")
        return (Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "share") / "evalfleet"

    def _token(self, env: Mapping[str, str]) -> str:
        """The token, which is fit for a header: gRPC's own error for one that is not does not say what is wrong."""
        token = self._find_token(env).strip()
        if not (token.isascii() and token.isprintable()):
            raise TokenInvalid("the token has characters that no token has; copy it again from the server's token file")
        return token

    def _find_token(self, env: Mapping[str, str]) -> str:
        if self.token:
            return self.token
        if not self.token_file and (token := env.get("EVALFLEET_TOKEN")):
            return token
        path = Path(self.token_file or env.get("EVALFLEET_TOKEN_FILE") or self.folder(env) / "token")
        try:
            mode = path.stat().st_mode
            token = path.read_text(errors="replace").strip()
        except OSError as missing:
            raise TokenInvalid(
                f"no token: {path} cannot be read ({missing.strerror}); "
                "name the server's with token_file, or set EVALFLEET_TOKEN"
            ) from missing
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise TokenInvalid(f"{path} can be read by others; run chmod 600 on it")
        if not token:
            raise TokenInvalid(f"{path} is empty; remove it and start the server again to have a new token written")
        return token


def _holder(folder: Path) -> dict[str, str] | None:
    """What the server that holds a data directory wrote into its lock; None if no process does."""
    try:
        content = json.loads((folder / "lock").read_text())
        os.kill(content["pid"], 0)
    except PermissionError:
        pass  # The process is another user's.
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return content if isinstance(content, dict) else None


class StartedServer:
    """A server that this client has started, and stops when it is closed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, place: Place, program: str | None = None) -> StartedServer:
        """Starts `evalfleet serve` on a free port, and returns when it takes calls."""
        path = program or shutil.which("evalfleet")
        if path is None:
            raise ServerUnreachable(
                "the program evalfleet is not on PATH, so that no server can be started; "
                "install it, or pass its path as `start`"
            )
        arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", str(place.folder())]
        if place.token_file:
            arguments += ["--token-file", str(place.token_file)]
        process = await asyncio.create_subprocess_exec(
            path,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        started = cls(process)
        try:
            await waiting.within(START_SECONDS, started._serving())
        except asyncio.TimeoutError:
            await started.stop()
            raise ServerUnreachable(f"evalfleet serve took no calls within {START_SECONDS:g} s") from None
        except BaseException:
            await started.stop()
            raise
        return started

    async def _serving(self) -> None:
        assert self._process.stdout is not None
        said = []
        while line := await self._process.stdout.readline():
            said.append(line.decode(errors="replace").strip())
            if said[-1].startswith("serving at "):
                self._drain = asyncio.ensure_future(_discard(self._process.stdout))
                return
        raise ServerUnreachable("evalfleet serve ended before it took calls: " + " / ".join(said[-5:]))

    async def stop(self) -> None:
        """Interrupts the server and waits for its end."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
        await self._process.wait()


async def _discard(output: asyncio.StreamReader) -> None:
    """Reads a server's log, so that it never waits for a reader."""
    while await output.read(1 << 16):
        pass
