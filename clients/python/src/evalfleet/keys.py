"""Keys of calls that have an effect."""

import uuid


def new_key() -> str:
    """A key for one logical call. However often the call is repeated under its key, its effect happens once."""
    return f"py-{uuid.uuid4().hex}"
