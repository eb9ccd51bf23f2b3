"""Large values of messages as blobs.

No message has more than 4 MiB: larger values travel apart, and `offloaded` lists them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from evalfleet.content.v1.content_pb2 import BlobRef, OffloadedField

M = TypeVar("M", bound=Message)

MESSAGE_BYTES = 3_500_000
"""Requests above this size are made smaller."""
SMALLEST = 4 << 10
"""Values below this size stay in place."""

_STEP = re.compile(r'(?P<field>\w+)(?:\[(?P<key>\d+|"(?:[^"\\]|\\.)*")\])?\.?')


async def take(message: M, get: Callable[[BlobRef], Awaitable[bytes]]) -> M:
    """Puts the values that a message lists as offloaded into their places."""
    for entry in list(getattr(message, "offloaded", ())):
        _set(message, entry.field, await get(entry.blob))
    if getattr(message, "offloaded", None):
        message.ClearField("offloaded")
    return message


async def put(message: M, store: Callable[[bytes], Awaitable[BlobRef]]) -> M:
    """The message itself, or if it is too large a copy whose largest values are offloaded."""
    size = message.ByteSize()
    if size <= MESSAGE_BYTES or "offloaded" not in message.DESCRIPTOR.fields_by_name:
        return message
    small = type(message)()
    small.CopyFrom(message)
    offloaded: Any = small.offloaded  # type: ignore[attr-defined]
    for path, value in sorted(_values(message), key=lambda found: -len(found[1])):
        if size <= MESSAGE_BYTES or len(value) < SMALLEST:
            break
        offloaded.append(OffloadedField(field=path, blob=await store(value)))
        _set(small, path, b"")
        size -= len(value)
    return small


def _values(message: Message, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    """Texts and bytes of a message, with their paths."""
    for field, value in message.ListFields():
        path = prefix + field.name
        if field.name == "offloaded":
            continue
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            items: list[tuple[str, Any]] = [
                (f"{path}[{json.dumps(str(key), ensure_ascii=False)}]", value[key]) for key in value
            ]
            field = entry.fields_by_name["value"]
        elif field.is_repeated:
            items = [(f"{path}[{i}]", item) for i, item in enumerate(value)]
        else:
            items = [(path, value)]
        for place, item in items:
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                yield from _values(item, place + ".")
            elif field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
                yield place, item.encode() if isinstance(item, str) else item


def _set(message: Any, path: str, value: bytes) -> None:
    """Sets the text or bytes at a path."""
    steps = list(_STEP.finditer(path))
    for step in steps[:-1]:
        message = getattr(message, step["field"])
        if step["key"] is not None:
            message = message[json.loads(step["key"])]
    last = steps[-1]
    field = message.DESCRIPTOR.fields_by_name[last["field"]]
    if field.message_type is not None:
        field = field.message_type.fields_by_name["value"]
    content = value.decode() if field.type == FieldDescriptor.TYPE_STRING else value
    if last["key"] is None:
        setattr(message, last["field"], content)
    else:
        getattr(message, last["field"])[json.loads(last["key"])] = content
