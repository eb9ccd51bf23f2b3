"""What inspect_ai loads through the entry point: the model API and the sandbox provider."""

from .model import EvalfleetModelAPI
from .sandbox import EvalfleetSandbox

__all__ = ["EvalfleetModelAPI", "EvalfleetSandbox"]
