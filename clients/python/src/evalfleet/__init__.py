"""The client of evalfleet: models, sandboxes, evaluations, runs and workers."""

from evalfleet.client import AsyncClient
from evalfleet.exceptions import EvalfleetError
from evalfleet.messages import Answer
from evalfleet.models import AsyncModels, Piece
from evalfleet.sandboxes import AsyncProcess, AsyncSandbox, AsyncSandboxes, ExecResult, Output

__all__ = [
    "Answer",
    "AsyncClient",
    "AsyncModels",
    "AsyncProcess",
    "AsyncSandbox",
    "AsyncSandboxes",
    "EvalfleetError",
    "ExecResult",
    "Output",
    "Piece",
]
