"""The client of evalfleet: models, sandboxes, evaluations, runs and workers.

[docs/python.md](https://github.com/evalfleet/evalfleet/blob/main/docs/python.md) introduces it.
"""

from evalfleet.blobs import AsyncBlobs
from evalfleet.blocking import Blobs, Client, Eval, Evals, Models, Process, Run, Runs, Sandbox, Sandboxes
from evalfleet.client import AsyncClient
from evalfleet.evals import AsyncEval, AsyncEvals
from evalfleet.exceptions import EvalfleetError
from evalfleet.keys import new_key
from evalfleet.messages import Answer, ToolCall
from evalfleet.models import AsyncModels, Piece
from evalfleet.runs import AsyncRun, AsyncRuns
from evalfleet.sandboxes import AsyncProcess, AsyncSandbox, AsyncSandboxes, ExecResult, Output
from evalfleet.workers import ContinueCall, Score, ScorerCall, Store, ToolCallContext, ToolError, Worker

__all__ = [
    "Answer",
    "AsyncBlobs",
    "AsyncClient",
    "AsyncEval",
    "AsyncEvals",
    "AsyncModels",
    "AsyncProcess",
    "AsyncRun",
    "AsyncRuns",
    "AsyncSandbox",
    "AsyncSandboxes",
    "Blobs",
    "Client",
    "ContinueCall",
    "Eval",
    "EvalfleetError",
    "Evals",
    "ExecResult",
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
    "Worker",
    "new_key",
]
