"""evalfleet for inspect_ai: models and sandboxes of an evalfleet server, in tasks as they are.

    inspect eval task.py --model evalfleet/openai/gpt-4o --sandbox evalfleet

inspect_ai finds both by entry points. Names in this module are for tasks that configure their sandbox in Python.
"""

from .config import SandboxConfig, SandboxLimits

__all__ = ["SandboxConfig", "SandboxLimits"]
