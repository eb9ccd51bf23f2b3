"""Durations of the protocol."""

from __future__ import annotations

from typing import overload

from google.protobuf.duration_pb2 import Duration


@overload
def of_seconds(seconds: float) -> Duration: ...


@overload
def of_seconds(seconds: float | None) -> Duration | None: ...


def of_seconds(seconds: float | None) -> Duration | None:
    """The duration of so many seconds; None remains None, an unset field."""
    if seconds is None:
        return None
    made = Duration()
    made.FromNanoseconds(round(seconds * 1e9))
    return made
