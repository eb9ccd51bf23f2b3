"""Failures of calls, as inspect_ai expects them of a model API and of a sandbox."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
from evalfleet import exceptions
from evalfleet.exceptions import EvalfleetError
from evalfleet.model.v1 import message_pb2 as messages
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.util import (
    OutputLimitExceededError,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
)

_STATUS = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}

_CREDENTIALS = frozenset({"PROVIDER_CREDENTIALS_REJECTED", "TOKEN_INVALID"})
_GONE = frozenset({"SANDBOX_LOST", "SANDBOX_TERMINATED", "RUN_FINISHED", "RESOURCE_NOT_FOUND"})


class ModelServerError(RuntimeError):
    """A call of a model that the server could not answer, after its own retries.

    Inspect shows `status_code` and passes it on to agents behind its bridge.
    """

    def __init__(self, error: EvalfleetError) -> None:
        super().__init__(str(error))
        self.reason = error.reason
        """The cause, for programs: a name of docs/errors.md, such as `PROVIDER_RATE_LIMITED`."""
        self.retry_after = error.retry_after
        """Seconds after which the call may be repeated, if the server said so."""
        provider = error.facts.get("status", "")
        self.status_code = int(provider) if provider.isdigit() else _STATUS.get(error.code, 500)
        """The provider's HTTP status if it answered, else the status that evalfleet's REST API has for the failure."""

    @property
    def credentials(self) -> bool:
        """Whether the token, or the key of the provider's account, was refused."""
        return self.reason in _CREDENTIALS


class ModelServerUnreachableError(ModelServerError, ConnectionError):
    """No server answered for as long as the client's patience."""


class ModelDeadlineError(ModelServerError, TimeoutError):
    """The call did not end within its time limit."""


def model_error(error: EvalfleetError) -> ModelServerError:
    """The exception of a call of a model."""
    if isinstance(error, exceptions.ServerUnreachable):
        return ModelServerUnreachableError(error)
    if error.code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return ModelDeadlineError(error)
    return ModelServerError(error)


def recorded_call(error: EvalfleetError) -> messages.ModelCall | None:
    """The exchange with the provider that a failed call had, if the server recorded it."""
    for detail in error.details:
        if detail.Is(messages.ModelCall.DESCRIPTOR):
            return messages.ModelCall.FromString(detail.value)
    return None


@contextmanager
def prerequisites(what: str) -> Iterator[None]:
    """Makes a failure one of the user's set-up, which ends the evaluation before its first sample."""
    try:
        yield
    except EvalfleetError as error:
        raise PrerequisiteError(f"{what}: {error}") from error


@contextmanager
def in_sandbox(path: str = "") -> Iterator[None]:
    """Raises what inspect_ai documents for operations of a sandbox, each with our reason.

    `path` is the file or program as the caller named it.
    """
    try:
        yield
    except EvalfleetError as error:
        raise sandbox_error(error, path) from error


def sandbox_error(error: EvalfleetError, path: str) -> Exception:
    """The exception of an operation in a sandbox."""
    if isinstance(error, exceptions.FileNotFound):
        return FileNotFoundError(errno.ENOENT, str(error), path)
    if isinstance(error, exceptions.IsADirectory):
        return IsADirectoryError(errno.EISDIR, f"Is a directory ({error})", path)
    if isinstance(error, exceptions.SandboxPermission):
        return PermissionError(errno.EACCES, str(error), path)
    if "spec.user" in error.fields:
        return SandboxUserUnsupportedError(str(error))
    if isinstance(error, exceptions.InvalidPath):
        return OSError(errno.EINVAL, str(error), path)
    if isinstance(error, exceptions.OutputLimit):
        return OutputLimitExceededError(
            limit_str=SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, truncated_output=None
        )
    if error.code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TimeoutError(str(error))
    if error.reason in _GONE or isinstance(error, exceptions.ServerUnreachable):
        return SandboxUnavailableError(str(error))
    return RuntimeError(str(error))
