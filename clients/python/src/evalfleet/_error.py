"""The root of the exceptions, and how a failed call becomes one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

Again = Literal["no", "yes", "yes, not begun"]

_DOMAIN = "evalfleet.dev"
_by_reason: dict[str, type[EvalfleetError]] = {}


class EvalfleetError(Exception):
    """A call failed. Its text says what to do about it.

    Each reason has a class of its own in `evalfleet.exceptions`; a reason that this version of the package does not
    know is an `EvalfleetError`.
    """

    reason: str = ""
    """The cause, for programs: a name of docs/errors.md, such as `SANDBOX_LOST`. Empty if the server gave none."""
    again: Again = "no"
    """What may become of the same call with the same key: `no`, `yes` or `yes, not begun`. The package has repeated
    it already where that is safe."""
    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN
    """The class of the failure in gRPC."""
    message: str
    """The text for people."""
    facts: Mapping[str, str]
    """Facts of the reason, such as `sandbox` or `known`."""
    fields: Mapping[str, str]
    """The fields of the request that are at fault, and what is wrong with each."""
    retry_after: float | None
    """Seconds after which the call may be repeated, if the server said so."""
    details: Sequence[Any]
    """What else the server told of the failure, such as the `ModelCall` of a failed call of a model."""

    def __init__(
        self,
        message: str,
        *,
        facts: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
        retry_after: float | None = None,
        details: Sequence[Any] = (),
        code: grpc.StatusCode | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts or {}
        self.fields = fields or {}
        self.retry_after = retry_after
        self.details = details
        if code is not None:
            self.code = code
        if reason is not None:
            self.reason = reason

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "reason" in cls.__dict__:
            _by_reason.setdefault(cls.reason, cls)

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if self.reason else self.message


def from_rpc(error: grpc.aio.AioRpcError) -> EvalfleetError:
    """The exception for a failed call. A failure without a reason of ours, such as a lost connection, has none."""
    reason, facts, fields, retry_after = "", {}, {}, None
    others: list[Any] = []
    for detail in _details(error):
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            info = error_details_pb2.ErrorInfo.FromString(detail.value)
            if info.domain == _DOMAIN:
                reason, facts = info.reason, dict(info.metadata)
        elif detail.Is(error_details_pb2.BadRequest.DESCRIPTOR):
            fields = {
                v.field: v.description for v in error_details_pb2.BadRequest.FromString(detail.value).field_violations
            }
        elif detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            delay = error_details_pb2.RetryInfo.FromString(detail.value).retry_delay
            retry_after = delay.seconds + delay.nanos / 1e9
        else:
            others.append(detail)
    kind = _by_reason.get(reason, EvalfleetError)
    return kind(
        error.details() or error.code().name,
        facts=facts,
        fields=fields,
        retry_after=retry_after,
        details=others,
        code=error.code(),
        reason=reason,
    )


def _details(error: grpc.aio.AioRpcError) -> list[Any]:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            try:
                return list(status_pb2.Status.FromString(value).details)
            except DecodeError:
                return []
    return []
