"""Values that are too large for a message."""

import hashlib

from evalfleet import offload
from evalfleet.agent.v1.run_pb2 import Run, RunSpec
from evalfleet.agent.v1.run_service_pb2 import CreateRunRequest
from evalfleet.content.v1.content_pb2 import BlobRef, Content, ContentList, MessageContent, Text
from evalfleet.model.v1.message_pb2 import ROLE_USER, ChatMessage


class Bodies:
    def __init__(self) -> None:
        self._bodies: dict[str, bytes] = {}

    async def put(self, value: bytes) -> BlobRef:
        name = hashlib.sha256(value).hexdigest()
        self._bodies[name] = value
        return BlobRef(hash=name, size=len(value))

    async def get(self, ref: BlobRef) -> bytes:
        return self._bodies[ref.hash]


def conversation(size: int) -> list[ChatMessage]:
    parts = [Content(text=Text(text="é" * (size // 2))), Content(text=Text(text="short"))]
    return [
        ChatMessage(role=ROLE_USER, content=MessageContent(text="x" * size)),
        ChatMessage(role=ROLE_USER, content=MessageContent(list=ContentList(parts=parts))),
    ]


async def test_the_largest_values_leave_and_come_back() -> None:
    bodies = Bodies()
    request = CreateRunRequest(parent="projects/default", spec=RunSpec(input=conversation(2_000_000)))
    before = request.SerializeToString()
    small = await offload.put(request, bodies.put)
    assert request.SerializeToString() == before
    assert small.ByteSize() < offload.MESSAGE_BYTES
    assert [entry.field for entry in small.offloaded] == ["spec.input[0].content.text"]
    assert await offload.take(small, bodies.get) == request


async def test_lists_and_maps_have_paths() -> None:
    bodies, store = Bodies(), {'odd "key"': "y" * 3_100_000, "other": "z" * 3_000_000}
    run = Run(messages=conversation(6_000_000), store=store)
    small = await offload.put(run, bodies.put)
    assert {entry.field for entry in small.offloaded} == {
        "messages[0].content.text",
        "messages[1].content.list.parts[0].text.text",
        'store["odd \\"key\\""]',
    }
    assert await offload.take(small, bodies.get) == run


async def test_a_small_message_stays_as_it_is() -> None:
    request = CreateRunRequest(spec=RunSpec(input=conversation(1_000)))
    assert await offload.put(request, Bodies().put) is request
