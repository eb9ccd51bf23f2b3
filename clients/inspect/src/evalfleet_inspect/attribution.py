"""For whom a call is made: the sample of Inspect that is at work. The server shows it, and scripted models read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalfleet.effect.v1.effect_pb2 import Attribution
from inspect_ai.log._samples import _active_model_event, sample_active
from inspect_ai.util._limit import turn_count


def attribution(purpose: str) -> Attribution:
    """The sample at work, its epoch, and for a call of a model (`agent`) its number within the sample, from 1.

    Outside a sample it has the purpose, and the role of the model, alone.
    """
    out = Attribution(purpose=purpose)
    call = _active_model_event.get()
    if purpose == "agent" and call is not None:
        out.role = call.role or ""
    active = sample_active()
    if active is not None:
        out.epoch = active.epoch
        if active.sample.id is not None:
            out.sample = str(active.sample.id)
        if purpose == "agent":
            out.turn = (turn_count() or 0) + 1
    return out


def sample_label(metadata: Mapping[str, Any]) -> str:
    """The id of the sample for which Inspect makes a sandbox."""
    return str(metadata.get("__sample_id__", ""))
