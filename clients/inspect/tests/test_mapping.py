"""What inspect_ai can represent reaches the protocol and comes back equal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from evalfleet.content.v1 import content_pb2 as contents
from evalfleet.model.v1 import config_pb2 as configs
from evalfleet.model.v1 import message_pb2 as protos
from google.protobuf import json_format
from inspect_ai._util.citation import DocumentRange
from inspect_ai._util.content import ContentToolUse
from inspect_ai.model import (
    BatchConfig,
    CachePolicy,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    Content,
    ContentAudio,
    ContentCitation,
    ContentData,
    ContentDocument,
    ContentImage,
    ContentReasoning,
    ContentText,
    ContentVideo,
    DocumentCitation,
    GenerateConfig,
    ImageOutput,
    ResponseSchema,
    UrlCitation,
)
from inspect_ai.tool import ToolCall, ToolCallContent, ToolCallError, ToolFunction, ToolInfo, ToolParam, ToolParams
from inspect_ai.util import AdaptiveConcurrency, JSONSchema

from evalfleet_inspect.messages import message_from_proto, message_to_proto, part_from_proto, part_to_proto, to_json
from evalfleet_inspect.options import OF_INSPECT, OptionRefusedError, choice_to_proto, config_to_proto, tools_to_proto
from evalfleet_inspect.output import call_from_proto, output_from_proto

PICTURE = "data:image/png;base64,iVBORw0KGgo="

PARTS: dict[str, Content] = {
    "text": ContentText(text="héllo\r\n✨", refusal=True, cache_breakpoint=True, internal={"id": [1, None]}),
    "empty text": ContentText(text="", refusal=False, cache_breakpoint=False),
    "citations": ContentText(
        text="cited",
        citations=[
            ContentCitation(cited_text="a", title="t", internal={"x": 1}),
            ContentCitation(cited_text=(0, 7)),
            UrlCitation(url="https://example.org", cited_text=""),
            DocumentCitation(range=DocumentRange(type="page", start_index=0, end_index=3)),
            DocumentCitation(title="whole"),
        ],
    ),
    "reasoning": ContentReasoning(reasoning="because", summary="", signature="sig=="),
    "sealed reasoning": ContentReasoning(reasoning="AAAA", redacted=True, internal="rs_1"),
    "image": ContentImage(image=PICTURE, detail="original"),
    "audio": ContentAudio(audio="data:audio/wav;base64,AAAA", format="wav"),
    "video": ContentVideo(video="data:video/quicktime;base64,AAAA", format="mov"),
    "document": ContentDocument(
        document="data:application/pdf;base64,AAAA", filename="x.pdf", mime_type="application/pdf", citations=True
    ),
    "data": ContentData(data={"a": {"b": [1, 2.5, None, True]}}, internal=0),
    "tool use": ContentToolUse(
        tool_type="mcp_call", id="1", name="n", context="server", arguments="{}", result="", error="no"
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_every_kind_of_content_comes_back_equal(name: str) -> None:
    message = ChatMessageUser(content=[PARTS[name]])
    assert message_from_proto(message_to_proto(message)) == message


def test_every_kind_of_content_is_tried() -> None:
    kinds = {part.type for part in PARTS.values()}
    assert kinds == {"text", "reasoning", "image", "audio", "video", "document", "data", "tool_use"}


CALL = ToolCall(
    id="c1",
    function="bash",
    arguments={"cmd": "ls", "n": 12345678901234567890, "f": 0.1, "none": None},
    parse_error="bad",
    view=ToolCallContent(title="t", format="markdown", content="x"),
    type="custom",
)
MESSAGES: list[ChatMessage] = [
    ChatMessageSystem(content="be good", source="operator", metadata={"a": [1, {"ü": None}]}),
    ChatMessageUser(content="", source="input", tool_call_id=["c1", "c2"]),
    ChatMessageUser(content=[]),
    ChatMessageAssistant(content="ok", source="generate", model="m", tool_calls=[CALL, CALL]),
    ChatMessageAssistant(content=[ContentText(text="a")], tool_calls=[]),
    ChatMessageAssistant(content="none", tool_calls=None, metadata={}),
    ChatMessageTool(content="out", tool_call_id="c1", function="bash", error=ToolCallError("timeout", "late")),
    ChatMessageTool(content="out"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: m.role)
def test_every_role_comes_back_equal(message: ChatMessage) -> None:
    back = message_from_proto(message_to_proto(message))
    assert back == message
    assert back.id == message.id


def test_every_kind_of_tool_error_comes_back_equal() -> None:
    for kind in ToolCallError.__annotations__["type"].__args__:
        message = ChatMessageTool(content="", error=ToolCallError(kind, "m"))
        assert message_from_proto(message_to_proto(message)) == message


def test_a_part_of_a_later_server_returns_as_it_came() -> None:
    part = contents.Content(tool_use=contents.ToolUse(tool_type=99, id="u", name="n"))  # type: ignore[arg-type]
    message = protos.ChatMessage(id="m", role=protos.ROLE_ASSISTANT)
    message.content.list.parts.append(part)
    read = message_from_proto(message)
    assert isinstance(read.content, list)
    assert isinstance(read.content[0], ContentData)
    assert message_to_proto(read).content == message.content


@pytest.mark.parametrize("internal", [None, {"b": 1, "a": 2}])
def test_who_can_read_a_seal_returns(internal: Any) -> None:
    part = contents.Content(internal_json=to_json(internal) if internal else "")
    part.reasoning.reasoning, part.reasoning.redacted, part.reasoning.sealed_by = "seal", True, "anthropic/claude"
    message = protos.ChatMessage(id="m", role=protos.ROLE_ASSISTANT)
    message.content.list.parts.append(part)
    read = message_from_proto(message)
    assert isinstance(read.content[0], ContentReasoning)
    assert read.content[0].internal == {**(internal or {}), "evalfleet.sealed_by": "anthropic/claude"}
    stored = type(read).model_validate_json(read.model_dump_json())
    assert message_to_proto(stored).content == message.content


def test_an_internal_text_stays_beside_who_can_read_a_seal() -> None:
    part = contents.Content(internal_json='"rs_1"')
    part.reasoning.reasoning, part.reasoning.redacted, part.reasoning.sealed_by = "seal", True, "anthropic/claude"
    read = part_from_proto(part)
    assert read.internal == "rs_1"


@pytest.mark.parametrize("sealer", ["", "x" * 513, 1, None])
def test_what_is_no_name_of_a_sealer_stays_as_it_is(sealer: Any) -> None:
    internal = {"evalfleet.sealed_by": sealer}
    part = part_to_proto(ContentReasoning(reasoning="seal", redacted=True, internal=internal))
    assert part.reasoning.sealed_by == ""
    assert json.loads(part.internal_json) == internal


def test_metadata_that_is_no_json_is_an_error() -> None:
    with pytest.raises(ValueError, match="JSON"):
        message_to_proto(ChatMessageUser(content="", metadata={"x": float("nan")}))


# Each option with a value, and what reaches the protocol.
OPTIONS: dict[str, tuple[Any, Any]] = {
    "max_retries": (0, 0),
    "timeout": (60, 60.0),
    "attempt_timeout": (5, 5.0),
    "stream_idle_timeout": (7, 7.0),
    "max_connections": (3, 3),
    "adaptive_connections": (
        AdaptiveConcurrency(min=2, start=3, max=4, cooldown_seconds=1.5),
        {"min": 2, "start": 3, "max": 4, "cooldownSeconds": 1.5, "decreaseFactor": 0.8, "scaleUpPercent": 0.05},
    ),
    "system_message": ("s", None),
    "max_tokens": (10, "10"),
    "top_p": (0.5, 0.5),
    "temperature": (0.0, 0.0),
    "stop_seqs": ([], {}),
    "best_of": (2, 2),
    "frequency_penalty": (-1.0, -1.0),
    "presence_penalty": (1.0, 1.0),
    "logit_bias": ({42: -100.0}, {"values": {"42": -100.0}}),
    "seed": (1, "1"),
    "top_k": (5, 5),
    "num_choices": (2, 2),
    "logprobs": (False, False),
    "top_logprobs": (0, 0),
    "prompt_logprobs": (1, 1),
    "parallel_tool_calls": (False, False),
    "internal_tools": (True, True),
    "max_tool_output": (1, None),
    "cache_prompt": (False, "CACHE_PROMPT_OFF"),
    "fallback_models": (["a", "b"], {"values": ["a", "b"]}),
    "fail_on_refusal": (True, None),
    "verbosity": ("low", "low"),
    "effort": ("max", "max"),
    "reasoning_effort": ("none", "none"),
    "reasoning_mode": ("pro", "pro"),
    "reasoning_tokens": (1024, "1024"),
    "reasoning_summary": ("auto", "auto"),
    "reasoning_history": ("last", "REASONING_HISTORY_LAST"),
    "response_schema": (
        ResponseSchema(name="n", json_schema=JSONSchema(type="object"), description="d", strict=True),
        {"name": "n", "jsonSchema": '{"type":"object"}', "description": "d", "strict": True},
    ),
    "extra_headers": ({"x-a": "1"}, {"values": {"x-a": "1"}}),
    "extra_body": ({"a": [1]}, '{"a":[1]}'),
    "modalities": (
        ["image", ImageOutput(options={"openai": {"quality": "low"}})],
        {"values": [{"type": "image"}, {"type": "image", "optionsJson": '{"openai":{"quality":"low"}}'}]},
    ),
    "cache": (
        CachePolicy(expiry=None, per_epoch=False, scopes={"a": "b"}),
        {"enabled": True, "policy": {"expiry": "never", "perEpoch": False, "scopes": {"a": "b"}}},
    ),
    "batch": (
        BatchConfig(size=3, send_delay=0.5),
        {"enabled": True, "size": 3, "sendDelay": "0.500s"},
    ),
}
OTHER_FORMS: list[tuple[str, Any, Any]] = [
    ("adaptive_connections", False, {"enabled": False}),
    ("adaptive_connections", 7, {"max": 7}),
    ("cache_prompt", True, "CACHE_PROMPT_ON"),
    ("cache_prompt", "auto", "CACHE_PROMPT_AUTO"),
    ("cache", True, {"enabled": True}),
    ("cache", False, {}),
    ("batch", True, {"enabled": True}),
    ("batch", False, {}),
    ("batch", 9, {"enabled": True, "size": 9}),
]


def test_every_option_of_inspect_is_tried() -> None:
    assert set(OPTIONS) == set(GenerateConfig.model_fields)
    assert {name for name, (_, sent) in OPTIONS.items() if sent is None} == OF_INSPECT


@pytest.mark.parametrize(("name", "value", "sent"), [(n, *vs) for n, vs in OPTIONS.items()] + OTHER_FORMS)
def test_an_option_reaches_the_protocol_or_is_carried_out_by_inspect(name: str, value: Any, sent: Any) -> None:
    out = config_to_proto(GenerateConfig(**{name: value}))
    as_json = json_format.MessageToDict(out)
    if sent is None:
        assert as_json == {}
    else:
        ((key, written),) = as_json.items()
        assert json_format.ParseDict({key: sent}, configs.GenerateConfig()) == out, written


def test_options_that_are_unset_stay_unset() -> None:
    assert config_to_proto(GenerateConfig()) == configs.GenerateConfig()


def test_an_option_that_this_package_does_not_know_is_refused_by_name() -> None:
    class Later(GenerateConfig):
        telepathy: bool | None = None

    with pytest.raises(OptionRefusedError, match="telepathy"):
        config_to_proto(Later(telepathy=True))


def test_a_value_that_the_protocol_cannot_hold_is_refused_by_name() -> None:
    with pytest.raises(OptionRefusedError, match="top_k"):
        config_to_proto(GenerateConfig(top_k=1 << 40))


def test_tools_have_their_schema_and_their_options() -> None:
    parameters = ToolParams(
        properties={"x": ToolParam(type="integer", description="d", default=0, enum=[0, 1])}, required=["x"]
    )
    bare, full = tools_to_proto(
        [
            ToolInfo(name="a", description=""),
            ToolInfo(name="b", description="B", parameters=parameters, options={"k": 1}),
        ]
    )
    assert bare.parameters_json == '{"type":"object","properties":{},"required":[],"additionalProperties":false}'
    assert bare.options_json == ""
    assert full.options_json == '{"k":1}'
    assert '"enum":[0,1]' in full.parameters_json
    assert '"default":0' in full.parameters_json
    assert '"required":["x"]' in full.parameters_json


def test_choices_of_tools() -> None:
    assert choice_to_proto("any").mode == 2
    assert choice_to_proto("none").mode == 3
    assert choice_to_proto("auto").mode == 1
    assert choice_to_proto(ToolFunction("f")).function == "f"


def test_an_output_comes_with_all_that_it_has() -> None:
    output = json_format.ParseDict(
        {
            "model": "m",
            "choices": [
                {
                    "message": {
                        "id": "1",
                        "role": "ROLE_ASSISTANT",
                        "model": "m",
                        "source": "MESSAGE_SOURCE_GENERATE",
                        "content": {"list": {"parts": [{"text": {"text": "a"}}]}},
                        "toolCalls": [{"id": "c", "function": "f", "argumentsJson": '{"x":1}'}],
                    },
                    "stopReason": "STOP_REASON_CONTENT_FILTER",
                    "stopDetails": {
                        "type": "refusal",
                        "category": "cyber",
                        "explanation": "why",
                        "categories": [{"category": "cyber", "level": "high"}, {"category": "x"}],
                    },
                    "logprobs": {
                        "content": [
                            {
                                "token": "a",
                                "logprob": -0.5,
                                "bytes": [97],
                                "topLogprobs": [{"token": "b", "logprob": -1.5, "bytes": [98]}],
                            }
                        ]
                    },
                    "promptLogprobs": {"content": [{"token": "p", "logprob": -2}]},
                },
                {"message": {"role": "ROLE_ASSISTANT"}, "stopReason": "STOP_REASON_MODEL_LENGTH"},
            ],
            "usage": {
                "inputTokens": 1,
                "outputTokens": 2,
                "totalTokens": 3,
                "inputTokensCacheWrite": 0,
                "inputTokensCacheRead": 5,
                "reasoningTokens": 6,
                "totalCost": 0.5,
            },
            "inputContextTokens": 6,
            "fallback": {"model": "m", "fallbackModel": "n", "count": 2, "metadataJson": '{"a":1}'},
            "time": 1.5,
            "metadataJson": '{"k":"v"}',
            "error": "moderated",
            "responseId": "r1",
        },
        protos.ModelOutput(),
    )
    read = output_from_proto(output).model_dump(exclude_none=True)
    first, second = read["choices"]
    assert read["usage"] == {
        "input_tokens": 1,
        "output_tokens": 2,
        "total_tokens": 3,
        "input_tokens_cache_write": 0,
        "input_tokens_cache_read": 5,
        "reasoning_tokens": 6,
        "total_cost": 0.5,
    }
    assert first["stop_reason"] == "content_filter"
    assert first["stop_details"]["categories"] == [{"category": "cyber", "level": "high"}, {"category": "x"}]
    assert first["logprobs"]["content"] == [
        {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [{"token": "b", "logprob": -1.5, "bytes": [98]}]}
    ]
    assert first["prompt_logprobs"]["content"] == [{"token": "p", "logprob": -2.0}]
    assert first["message"]["tool_calls"][0]["arguments"] == {"x": 1}
    assert second["stop_reason"] == "model_length"
    assert read["fallback"] == {"model": "m", "fallback_model": "n", "count": 2, "metadata": {"a": 1}}
    rest = {name: read[name] for name in ("model", "time", "metadata", "error", "response_id", "input_context_tokens")}
    assert rest == {
        "model": "m",
        "time": 1.5,
        "metadata": {"k": "v"},
        "error": "moderated",
        "response_id": "r1",
        "input_context_tokens": 6,
    }


def test_the_raw_call_has_request_answer_and_time() -> None:
    call = protos.ModelCall(request_json='{"a":1}', response_json='{"b":2}', error=True, time=0.5)
    read = call_from_proto(call)
    assert (read.request, read.response, read.error, read.time) == ({"a": 1}, {"b": 2}, True, 0.5)
