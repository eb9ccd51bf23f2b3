"""The client of evalfleet: models, sandboxes, evaluations, runs and workers.

[docs/python.md](https://github.com/evalfleet/evalfleet/blob/main/docs/python.md) introduces it.
"""

from evalfleet.batches import AsyncBatches
from evalfleet.blobs import AsyncBlobs
from evalfleet.blocking import (
    Batches,
    Blobs,
    Cache,
    Client,
    Eval,
    Evals,
    Limits,
    Models,
    Process,
    Run,
    Runs,
    Sandbox,
    Sandboxes,
    Tools,
)
from evalfleet.cache import AsyncCache
from evalfleet.client import AsyncClient
from evalfleet.evals import AsyncEval, AsyncEvals
from evalfleet.exceptions import EvalfleetError
from evalfleet.keys import new_key
from evalfleet.limits import AsyncLimits
from evalfleet.messages import Answer, ToolCall, text_of
from evalfleet.models import AsyncModels, Piece
from evalfleet.runs import AsyncRun, AsyncRuns
from evalfleet.sandboxes import AsyncProcess, AsyncSandbox, AsyncSandboxes, ExecResult, Output
from evalfleet.tools import AsyncTools
from evalfleet.workers import ContinueCall, Score, ScorerCall, Store, ToolCallContext, ToolError, Worker

__all__ = [
    "Answer",
    "AsyncBatches",
    "AsyncBlobs",
    "AsyncCache",
    "AsyncClient",
    "AsyncEval",
    "AsyncEvals",
    "AsyncLimits",
    "AsyncModels",
    "AsyncProcess",
    "AsyncRun",
    "AsyncRuns",
    "AsyncSandbox",
    "AsyncSandboxes",
    "AsyncTools",
    "Batches",
    "Blobs",
    "Cache",
    "Client",
    "ContinueCall",
    "Eval",
    "EvalfleetError",
    "Evals",
    "ExecResult",
    "Limits",
    "Models",
    "Output",
    "Piece",
    "Process",
    "Run",
    "Runs",
    "Sandbox",
    "Sandboxes",
    "Score",
    "ScorerCall",
    "Store",
    "ToolCall",
    "ToolCallContext",
    "ToolError",
    "Tools",
    "Worker",
    "new_key",
    "text_of",
]
