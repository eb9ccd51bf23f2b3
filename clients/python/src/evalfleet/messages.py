"""Conversations as plain values, and their messages of the protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, Union

from google.protobuf import json_format
from google.protobuf.message import Message as ProtocolMessage

from evalfleet.content.v1.content_pb2 import Content, ContentList, MessageContent
from evalfleet.content.v1.content_pb2 import Text as TextPart
from evalfleet.model.v1 import message_pb2, model_service_pb2
from evalfleet.model.v1.config_pb2 import GenerateConfig, StringList
from evalfleet.model.v1.message_pb2 import ChatMessage
from evalfleet.tool.v1 import tool_pb2
from evalfleet.tool.v1.tool_pb2 import ToolChoice, ToolChoiceMode, ToolInfo

Message = Union[str, Mapping[str, Any], ChatMessage]
"""A message: a text of the user, a dict such as `{"role": "user", "content": "Hi"}`, or a message of the protocol."""
Conversation = Union[str, Sequence[Message]]
"""A conversation: one text of the user, or messages."""

Parsed = TypeVar("Parsed", bound=ProtocolMessage)

_ROLES = ("system", "user", "assistant", "tool")


def conversation(messages: Conversation) -> list[ChatMessage]:
    """The messages of the protocol for a conversation."""
    return (
        [message({"role": "user", "content": messages})]
        if isinstance(messages, str)
        else [message(m) for m in messages]
    )


def message(value: Message) -> ChatMessage:
    """The message of the protocol for a plain one.

    A dict has `role` and `content`: a text, or a list of texts and parts in the JSON form of the protocol, such as
    `{"image": {"media": {"uri": …}}}`. An assistant's may have `tool_calls`, each with `id`, `function` and
    `arguments`; a tool's has `tool_call_id` and perhaps `function`.
    """
    if isinstance(value, ChatMessage):
        return value
    if isinstance(value, str):
        value = {"role": "user", "content": value}
    unknown = set(value) - {"role", "content", "tool_calls", "tool_call_id", "function", "id"}
    if unknown or value.get("role") not in _ROLES:
        wrong = (
            f"unknown member {sorted(unknown)[0]!r}"
            if unknown
            else f"role {value.get('role')!r}; roles are {', '.join(_ROLES)}"
        )
        raise ValueError(f"message {dict(value)!r}: {wrong}")
    made = ChatMessage(
        role=message_pb2.Role.Value(f"ROLE_{value['role'].upper()}"),
        content=_content(value.get("content") or ""),
        id=value.get("id", ""),
        function=value.get("function", ""),
    )
    for call in value.get("tool_calls", ()):
        made.tool_calls.append(call if isinstance(call, tool_pb2.ToolCall) else _tool_call(call))
    if "tool_call_id" in value:
        made.tool_call_ids.append(value["tool_call_id"])
    return made


def _content(value: Any) -> MessageContent:
    if isinstance(value, MessageContent):
        return value
    if isinstance(value, str):
        return MessageContent(text=value)
    return MessageContent(list=ContentList(parts=[_part(part) for part in value]))


def _part(value: Any) -> Content:
    if isinstance(value, Content):
        return value
    if isinstance(value, str):
        return Content(text=TextPart(text=value))
    return parse(value, Content())


def parse(value: Mapping[str, Any], into: Parsed) -> Parsed:
    """The message of the protocol in its JSON form; ValueError if it has none of that form."""
    try:
        return json_format.ParseDict(dict(value), into)
    except json_format.ParseError as wrong:
        raise ValueError(str(wrong)) from None


def _tool_call(value: Mapping[str, Any]) -> tool_pb2.ToolCall:
    arguments = value.get("arguments") or {}
    return tool_pb2.ToolCall(
        id=value.get("id", ""),
        function=value["function"],
        arguments_json=arguments if isinstance(arguments, str) else json.dumps(arguments),
    )


def _arguments(call: tool_pb2.ToolCall) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments_json or "{}")
    except ValueError:
        return {}
    return arguments if isinstance(arguments, dict) else {}


def text_of(message: ChatMessage) -> str:
    """The text of a message: its texts, one below the other, without parts of other kinds."""
    content = message.content
    if content.WhichOneof("form") == "list":
        return "\n".join(part.text.text for part in content.list.parts if part.WhichOneof("part") == "text")
    return content.text


def config_of(config: Mapping[str, Any] | GenerateConfig | None) -> GenerateConfig | None:
    """The configuration of the protocol for a dict of its members, such as `{"temperature": 0}`."""
    if config is None or isinstance(config, GenerateConfig):
        return config
    plain = dict(config)
    stop = plain.pop("stop_seqs", None)
    made = parse(plain, GenerateConfig())
    if stop is not None:
        made.stop_seqs.CopyFrom(StringList(values=stop))
    return made


def tool_of(tool: Mapping[str, Any] | ToolInfo) -> ToolInfo:
    """The tool of the protocol for a dict with `name`, `description` and `parameters`, a JSON Schema."""
    if isinstance(tool, ToolInfo):
        return tool
    if unknown := set(tool) - {"name", "description", "parameters"}:
        raise ValueError(f"tool {dict(tool)!r}: unknown member {sorted(unknown)[0]!r}")
    if not tool.get("name"):
        raise ValueError(f"tool {dict(tool)!r} has no name")
    schema = tool.get("parameters") or {"type": "object", "properties": {}}
    return ToolInfo(name=tool["name"], description=tool.get("description", ""), parameters_json=json.dumps(schema))


def tool_choice_of(choice: str | ToolChoice | None) -> ToolChoice | None:
    """The choice for `auto`, `any`, `none`, or the name of the one tool that the model has to call."""
    if choice is None or isinstance(choice, ToolChoice):
        return choice
    modes = {"auto": "AUTO", "any": "ANY", "none": "NONE"}
    if choice in modes:
        return ToolChoice(mode=ToolChoiceMode.Value(f"TOOL_CHOICE_MODE_{modes[choice]}"))
    return ToolChoice(function=choice)


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool that the model asks for."""

    id: str
    function: str
    arguments: dict[str, Any]
    """The arguments; empty if the model wrote none that can be read."""


@dataclass(frozen=True)
class Answer:
    """A model's answer."""

    response: model_service_pb2.GenerateResponse
    """The whole response: choices, usage, time, warnings, failed attempts."""

    @property
    def text(self) -> str:
        """The text of the first choice."""
        return self.response.output.completion or text_of(self.message)

    @property
    def message(self) -> ChatMessage:
        """The message of the first choice, to continue the conversation with."""
        choices = self.response.output.choices
        return choices[0].message if choices else ChatMessage(role=message_pb2.ROLE_ASSISTANT)

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The calls of tools that the model asks for."""
        return [ToolCall(call.id, call.function, _arguments(call)) for call in self.message.tool_calls]

    @property
    def stop_reason(self) -> str:
        """Why the model stopped: `stop`, `max_tokens`, `model_length`, `tool_calls`, `content_filter` or `unknown`."""
        choices = self.response.output.choices
        return (
            message_pb2.StopReason.Name(choices[0].stop_reason).removeprefix("STOP_REASON_").lower()
            if choices
            else "unknown"
        )

    @property
    def usage(self) -> message_pb2.ModelUsage:
        """Tokens used."""
        return self.response.output.usage

    def __str__(self) -> str:
        return self.text
