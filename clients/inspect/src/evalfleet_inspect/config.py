"""Configuration of a sandbox, and compose files as far as a sandbox can be what they describe."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from logging import getLogger
from pathlib import Path
from typing import Any

import yaml
from evalfleet.sandbox.v1 import sandbox_pb2 as sandboxes
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.util import ComposeConfig, warn_once
from inspect_ai.util._sandbox.compose import ComposeService, is_compose_yaml, is_dockerfile, parse_compose_yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

logger = getLogger(__name__)

DEFAULT_LEASE = 120.0
"""Seconds for which a sandbox lives after the process that uses it was killed."""

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

# Members of a service of a compose file that change nothing in a sandbox: its guest keeps it alive, and it has an init
# process of its own.
_WITHOUT_EFFECT = frozenset(
    {"command", "entrypoint", "init", "stop_grace_period", "restart", "stdin_open", "tty", "pull_policy", "expose"}
    # Inspect's own: which image is not pulled, and which of several services is the sandbox.
    | {"x-local", "x-default"}
)
_USED = frozenset({"image", "working_dir", "environment", "user", "mem_limit", "cpus", "pids_limit", "network_mode"})


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SandboxLimits(_Strict):
    """Bounds of what a sandbox may use. What is unset has the server's default."""

    memory_bytes: int | None = Field(default=None)
    """Memory, at least 64 MiB."""
    pids: int | None = Field(default=None)
    """Processes and threads."""
    cpu_millis: int | None = Field(default=None)
    """Processor share in thousandths of a core."""
    open_files: int | None = Field(default=None)
    """Open files of a process."""
    file_size_bytes: int | None = Field(default=None)
    """Size of one file."""
    disk_bytes: int | None = Field(default=None)
    """Writable space."""


class SandboxConfig(_Strict):
    """What a sandbox is made of. Everything has a default.

    In a task: `sandbox=SandboxEnvironmentSpec("evalfleet", SandboxConfig(driver="docker", image="python:3.12"))`.
    In a file of YAML or JSON with the same members: `--sandbox evalfleet:sandbox.yaml`.
    """

    driver: str | None = Field(default=None)
    """`local` or `docker`; default EVALFLEET_SANDBOX_DRIVER, then the server's."""
    image: str | None = Field(default=None)
    """Image of container drivers; default EVALFLEET_SANDBOX_IMAGE, then the server's."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment of every command. The host's environment is not passed on."""
    workdir: str | None = Field(default=None)
    """Working directory, an absolute path."""
    user: str | None = Field(default=None)
    """User of commands; default: the driver's unprivileged user, or the image's."""
    limits: SandboxLimits = Field(default_factory=SandboxLimits)
    """Bounds."""
    network: list[str] = Field(default_factory=list)
    """Hosts that the sandbox may reach, such as `pypi.org` or `*.example.org:443`; default none."""
    files: dict[str, str] = Field(default_factory=dict)
    """Text of files to place, by their path in the sandbox. Inspect adds those of the sample."""
    setup: str | None = Field(default=None)
    """Script that runs once, before that of the sample."""
    setup_timeout: float | None = Field(default=None)
    """Seconds for `setup`; default 300."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels, for lists of sandboxes."""
    lease: float = Field(default=DEFAULT_LEASE, gt=0, le=86400)
    """Seconds for which the sandbox lives after Inspect's process was killed. It is renewed while the sample runs."""
    max_lifetime: float | None = Field(default=None)
    """Seconds for which it lives in any case; default a day."""
    create_timeout: float | None = Field(default=None)
    """Seconds for its creation, waiting included; default: the server's."""
    allow_unisolated: bool = Field(default=False)
    """Allow a missing part of the isolation, if the server's operator does too."""

    def __hash__(self) -> int:
        # Inspect keeps one entry for all samples with equal configurations.
        return hash(self.model_dump_json())

    def spec(self, env: Mapping[str, str] = os.environ) -> sandboxes.SandboxSpec:
        """The specification for the server."""
        spec = sandboxes.SandboxSpec(
            driver=self.driver or env.get("EVALFLEET_SANDBOX_DRIVER", ""),
            image=self.image or env.get("EVALFLEET_SANDBOX_IMAGE", ""),
            env=self.env,
            workdir=self.workdir or "",
            user=self.user or "",
            limits=sandboxes.Limits(**self.limits.model_dump(exclude_none=True)),
            files=[sandboxes.FileToPlace(path=path, text=text) for path, text in self.files.items()],
            setup=self.setup or "",
            labels=self.labels,
            allow_unisolated=self.allow_unisolated,
        )
        if self.network:
            spec.network.mode = sandboxes.NETWORK_MODE_ALLOW_LIST
            spec.network.allow_hosts.extend(self.network)
        spec.lease.FromNanoseconds(round(self.lease * 1e9))
        if self.max_lifetime is not None:
            spec.max_lifetime.FromNanoseconds(round(self.max_lifetime * 1e9))
        if self.setup_timeout is not None:
            spec.setup_timeout.FromNanoseconds(round(self.setup_timeout * 1e9))
        return spec


def resolve(config: BaseModel | str | None) -> SandboxConfig:
    """The configuration that a task gives: ours, a file of it, or a compose file.

    Raises:
        PrerequisiteError: What it asks for cannot be had. The text names the member.
    """
    if config is None:
        return SandboxConfig()
    if isinstance(config, SandboxConfig):
        return config
    if isinstance(config, ComposeConfig):
        return _of_compose(config, "the compose configuration")
    if not isinstance(config, str):
        raise PrerequisiteError(f"the sandbox evalfleet takes a SandboxConfig, and not a {type(config).__name__}")
    if is_dockerfile(config):
        raise PrerequisiteError(
            f"{config}: evalfleet builds no images; build it (docker build -t NAME {Path(config).parent or '.'}), "
            "and name it with EVALFLEET_SANDBOX_IMAGE or in a file with image: NAME"
        )
    if is_compose_yaml(config):
        return _of_compose(parse_compose_yaml(config), config)
    return _of_file(config)


def _of_file(path: str) -> SandboxConfig:
    try:
        members = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise PrerequisiteError(f"--sandbox evalfleet:{path}: the file cannot be read ({error.strerror})") from error
    except yaml.YAMLError as error:
        raise PrerequisiteError(f"--sandbox evalfleet:{path}: {error}") from error
    try:
        return SandboxConfig.model_validate(members or {})
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise PrerequisiteError(f"--sandbox evalfleet:{path}: {faults}") from error


def _of_compose(compose: ComposeConfig, source: str) -> SandboxConfig:
    """The one service of a compose file. A sandbox of several services needs groups, which the server does not have."""
    if len(compose.services) != 1:
        raise PrerequisiteError(
            f"{source} has {len(compose.services)} services ({', '.join(compose.services)}): "
            "a sample with several services needs sandbox groups, which evalfleet does not have yet"
        )
    ((name, service),) = compose.services.items()
    refused = sorted(
        member
        for member in service.model_fields_set - _USED - _WITHOUT_EFFECT
        if getattr(service, member, None) not in (None, False, [], {})
    )
    if refused:
        raise PrerequisiteError(f"{source}: evalfleet cannot honour services.{name}.{', '.join(refused)}; leave it out")
    if service.network_mode not in (None, "none", "bridge"):
        raise PrerequisiteError(f"{source}: evalfleet has no network_mode {service.network_mode}")
    if service.network_mode != "none":
        warn_once(logger, f"{source}: sandboxes of evalfleet have no network unless `network` lists hosts")
    # Without an image the driver's own is used, as Inspect uses its own.
    return SandboxConfig(
        driver="docker",
        image=service.image,
        env=_environment(service),
        workdir=service.working_dir,
        user=service.user,
        limits=SandboxLimits(
            memory_bytes=_bytes(service.mem_limit, source) if service.mem_limit else None,
            cpu_millis=round(float(service.cpus) * 1000) if service.cpus else None,
            pids=int(service.pids_limit) if service.pids_limit and int(service.pids_limit) > 0 else None,
        ),
    )


def _environment(service: ComposeService) -> dict[str, str]:
    given: Any = service.environment or {}
    pairs = dict(entry.partition("=")[::2] for entry in given) if isinstance(given, list) else dict(given)
    for name, value in pairs.items():
        if not value:
            # As in compose: a name alone takes the value of Inspect's own environment.
            pairs[name] = os.environ.get(name, "") if value is None else value
    return {name: str(value) for name, value in pairs.items()}


def _bytes(text: str | int, source: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?", str(text).strip().lower())
    if not found:
        raise PrerequisiteError(f"{source}: mem_limit {text!r} is no size such as 512m or 2g")
    return round(float(found[1]) * _UNITS[found[2]])
