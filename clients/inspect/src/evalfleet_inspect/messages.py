"""Messages and their content, between inspect_ai's classes and evalfleet's protocol, in both directions.

Each function is pure and total: what inspect_ai can represent reaches the protocol and returns equal. What a later
server adds to the protocol and this package does not know becomes opaque content (`ContentData`), which returns to
the server as it came.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast

from evalfleet.content.v1 import content_pb2 as contents
from evalfleet.model.v1 import message_pb2 as messages
from evalfleet.tool.v1 import tool_pb2 as tools
from google.protobuf import json_format
from inspect_ai._util.citation import DocumentRange
from inspect_ai._util.content import (
    Content,
    ContentAudio,
    ContentData,
    ContentDocument,
    ContentImage,
    ContentReasoning,
    ContentText,
    ContentToolUse,
    ContentVideo,
)
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    Citation,
    ContentCitation,
    DocumentCitation,
    UrlCitation,
)
from inspect_ai.tool import ToolCall, ToolCallContent, ToolCallError

_UNKNOWN = "evalfleet_part"
"""The key of `ContentData.data` that holds a part of a kind that this package does not know."""

_SEALED_BY = "evalfleet.sealed_by"
"""The key of `ContentReasoning.internal` that holds who can read a seal, as in logs of evalfleet. An `internal` that is
no object has no room for it."""

_MAX_SEALER = 512
"""The bound of `Reasoning.sealed_by` in characters: the server refuses a longer one."""

_SOURCES = {
    "input": messages.MESSAGE_SOURCE_INPUT,
    "generate": messages.MESSAGE_SOURCE_GENERATE,
    "operator": messages.MESSAGE_SOURCE_OPERATOR,
}
_SOURCE_NAMES = {number: name for name, number in _SOURCES.items()}

_DETAILS = {
    "auto": contents.IMAGE_DETAIL_AUTO,
    "low": contents.IMAGE_DETAIL_LOW,
    "high": contents.IMAGE_DETAIL_HIGH,
    "original": contents.IMAGE_DETAIL_ORIGINAL,
}
_DETAIL_NAMES = {number: name for name, number in _DETAILS.items()}

_AUDIO_FORMATS = {"wav": contents.AUDIO_FORMAT_WAV, "mp3": contents.AUDIO_FORMAT_MP3}
_AUDIO_FORMAT_NAMES = {number: name for name, number in _AUDIO_FORMATS.items()}

_VIDEO_FORMATS = {
    "mp4": contents.VIDEO_FORMAT_MP4,
    "mpeg": contents.VIDEO_FORMAT_MPEG,
    "mov": contents.VIDEO_FORMAT_MOV,
}
_VIDEO_FORMAT_NAMES = {number: name for name, number in _VIDEO_FORMATS.items()}

_TOOL_USES = {
    "web_search": contents.TOOL_USE_TYPE_WEB_SEARCH,
    "mcp_call": contents.TOOL_USE_TYPE_MCP_CALL,
    "code_execution": contents.TOOL_USE_TYPE_CODE_EXECUTION,
}
_TOOL_USE_NAMES = {number: name for name, number in _TOOL_USES.items()}

_RANGES = {
    "block": contents.DOCUMENT_RANGE_TYPE_BLOCK,
    "page": contents.DOCUMENT_RANGE_TYPE_PAGE,
    "char": contents.DOCUMENT_RANGE_TYPE_CHAR,
}
_RANGE_NAMES = {number: name for name, number in _RANGES.items()}

_TOOL_ERRORS = {
    "parsing": tools.TOOL_ERROR_TYPE_PARSING,
    "timeout": tools.TOOL_ERROR_TYPE_TIMEOUT,
    "unicode_decode": tools.TOOL_ERROR_TYPE_UNICODE_DECODE,
    "permission": tools.TOOL_ERROR_TYPE_PERMISSION,
    "file_not_found": tools.TOOL_ERROR_TYPE_FILE_NOT_FOUND,
    "is_a_directory": tools.TOOL_ERROR_TYPE_IS_A_DIRECTORY,
    "limit": tools.TOOL_ERROR_TYPE_LIMIT,
    "approval": tools.TOOL_ERROR_TYPE_APPROVAL,
    "cancelled": tools.TOOL_ERROR_TYPE_CANCELLED,
    "sandbox_unavailable": tools.TOOL_ERROR_TYPE_SANDBOX_UNAVAILABLE,
    "unknown": tools.TOOL_ERROR_TYPE_UNKNOWN,
    "output_limit": tools.TOOL_ERROR_TYPE_OUTPUT_LIMIT,
}
_TOOL_ERROR_NAMES = {number: name for name, number in _TOOL_ERRORS.items()}


def to_json(value: Any) -> str:
    """JSON text of a value, compact and with characters as they are. Numbers that JSON lacks (NaN) are an error."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _object(text: str) -> dict[str, Any] | None:
    """The object in a text of the protocol, which is empty where there is none."""
    return cast("dict[str, Any]", json.loads(text)) if text else None


def messages_to_proto(conversation: Iterable[ChatMessage]) -> list[messages.ChatMessage]:
    """A conversation in evalfleet's form, in the same order."""
    return [message_to_proto(message) for message in conversation]


def message_to_proto(message: ChatMessage) -> messages.ChatMessage:
    """One message in evalfleet's form. Metadata that JSON cannot represent raises `TypeError` or `ValueError`."""
    out = messages.ChatMessage(id=message.id or "", content=content_to_proto(message.content))
    if message.source is not None:
        out.source = _SOURCES[message.source]
    if message.metadata is not None:
        out.metadata_json = to_json(message.metadata)
    if isinstance(message, ChatMessageSystem):
        out.role = messages.ROLE_SYSTEM
    elif isinstance(message, ChatMessageUser):
        out.role = messages.ROLE_USER
        out.tool_call_ids.extend(message.tool_call_id or [])
    elif isinstance(message, ChatMessageAssistant):
        out.role = messages.ROLE_ASSISTANT
        out.model = message.model or ""
        if message.tool_calls is not None:
            out.tool_calls.extend(call_to_proto(call) for call in message.tool_calls)
            out.tool_calls_removed = not message.tool_calls
    else:
        out.role = messages.ROLE_TOOL
        if message.tool_call_id is not None:
            out.tool_call_ids.append(message.tool_call_id)
        out.function = message.function or ""
        if message.error is not None:
            out.error.CopyFrom(
                tools.ToolCallError(type=_TOOL_ERRORS[message.error.type], message=message.error.message)
            )
    return out


def message_from_proto(message: messages.ChatMessage) -> ChatMessage:
    """One message in inspect_ai's form."""
    # An id that is absent stays absent only in records; inspect_ai makes one.
    common: dict[str, Any] = {
        "content": content_from_proto(message.content),
        "source": _SOURCE_NAMES.get(message.source),
        "metadata": _object(message.metadata_json),
    }
    if message.id:
        common["id"] = message.id
    if message.role == messages.ROLE_SYSTEM:
        return ChatMessageSystem(**common)
    if message.role == messages.ROLE_USER:
        return ChatMessageUser(**common, tool_call_id=list(message.tool_call_ids) or None)
    if message.role == messages.ROLE_TOOL:
        return ChatMessageTool(
            **common,
            tool_call_id=message.tool_call_ids[0] if message.tool_call_ids else None,
            function=message.function or None,
            error=tool_error_from_proto(message.error) if message.HasField("error") else None,
        )
    return assistant_from_proto(message, **common)


def assistant_from_proto(message: messages.ChatMessage, **common: Any) -> ChatMessageAssistant:
    """A message of a model in inspect_ai's form; `common` is what the caller has converted already."""
    if not common:
        common = {"content": content_from_proto(message.content), "source": _SOURCE_NAMES.get(message.source)}
        common["metadata"] = _object(message.metadata_json)
        if message.id:
            common["id"] = message.id
    calls = [call_from_proto(call) for call in message.tool_calls]
    return ChatMessageAssistant(
        **common,
        tool_calls=calls if calls or message.tool_calls_removed else None,
        model=message.model or None,
    )


def tool_error_from_proto(error: tools.ToolCallError) -> ToolCallError:
    """A failure that the model sees; a kind of a later server is `unknown`."""
    return ToolCallError(cast("Any", _TOOL_ERROR_NAMES.get(error.type, "unknown")), error.message)


def call_to_proto(call: ToolCall) -> tools.ToolCall:
    """A model's call of a tool."""
    out = tools.ToolCall(
        id=call.id,
        function=call.function,
        arguments_json=to_json(call.arguments),
        type=tools.TOOL_CALL_TYPE_CUSTOM if call.type == "custom" else tools.TOOL_CALL_TYPE_FUNCTION,
    )
    if call.parse_error is not None:
        out.parse_error = call.parse_error
    if call.view is not None:
        out.view.CopyFrom(
            tools.ToolCallContent(
                title=call.view.title or "",
                format=tools.VIEW_FORMAT_MARKDOWN if call.view.format == "markdown" else tools.VIEW_FORMAT_TEXT,
                content=call.view.content,
            )
        )
    return out


def call_from_proto(call: tools.ToolCall) -> ToolCall:
    """A model's call of a tool."""
    view = None
    if call.HasField("view"):
        view = ToolCallContent(
            title=call.view.title or None,
            format="markdown" if call.view.format == tools.VIEW_FORMAT_MARKDOWN else "text",
            content=call.view.content,
        )
    return ToolCall(
        id=call.id,
        function=call.function,
        arguments=_object(call.arguments_json) or {},
        parse_error=call.parse_error if call.HasField("parse_error") else None,
        view=view,
        type="custom" if call.type == tools.TOOL_CALL_TYPE_CUSTOM else "function",
    )


def content_to_proto(content: str | Sequence[Content]) -> contents.MessageContent:
    """The content of a message: one text, or parts. The two forms stay distinct."""
    if isinstance(content, str):
        return contents.MessageContent(text=content)
    return contents.MessageContent(list=contents.ContentList(parts=[part_to_proto(part) for part in content]))


def content_from_proto(content: contents.MessageContent) -> str | list[Content]:
    """The content of a message."""
    if content.WhichOneof("form") == "list":
        return [part_from_proto(part) for part in content.list.parts]
    return content.text


def part_to_proto(part: Content) -> contents.Content:
    """One part of a message."""
    if isinstance(part, ContentData) and isinstance(part.data.get(_UNKNOWN), dict):
        return json_format.ParseDict(
            cast("dict[str, Any]", part.data[_UNKNOWN]), contents.Content(), ignore_unknown_fields=True
        )
    out = contents.Content()
    internal = part.internal
    if isinstance(part, ContentReasoning) and isinstance(internal, dict):
        sealer = internal.get(_SEALED_BY)
        if isinstance(sealer, str) and 0 < len(sealer) <= _MAX_SEALER:
            out.reasoning.sealed_by = sealer
            internal = {key: value for key, value in internal.items() if key != _SEALED_BY} or None
    if internal is not None:
        out.internal_json = to_json(internal)
    if isinstance(part, ContentText):
        out.text.text = part.text
        if part.refusal is not None:
            out.text.refusal = part.refusal
        if part.cache_breakpoint is not None:
            out.text.cache_breakpoint = part.cache_breakpoint
        out.text.citations.extend(_citation_to_proto(citation) for citation in part.citations or [])
    elif isinstance(part, ContentReasoning):
        out.reasoning.reasoning = part.reasoning
        out.reasoning.redacted = part.redacted
        if part.summary is not None:
            out.reasoning.summary = part.summary
        if part.signature is not None:
            out.reasoning.signature = part.signature
    elif isinstance(part, ContentImage):
        out.image.media.uri = part.image
        out.image.detail = _DETAILS[part.detail]
    elif isinstance(part, ContentAudio):
        out.audio.media.uri = part.audio
        out.audio.format = _AUDIO_FORMATS[part.format]
    elif isinstance(part, ContentVideo):
        out.video.media.uri = part.video
        out.video.format = _VIDEO_FORMATS[part.format]
    elif isinstance(part, ContentDocument):
        out.document.media.uri = part.document
        out.document.filename = part.filename
        out.document.mime_type = part.mime_type
        out.document.citations = part.citations
    elif isinstance(part, ContentToolUse):
        use = out.tool_use
        use.tool_type = _TOOL_USES[part.tool_type]
        use.id, use.name, use.arguments, use.result = part.id, part.name, part.arguments, part.result
        if part.context is not None:
            use.context = part.context
        if part.error is not None:
            use.error = part.error
    else:
        out.data.json = to_json(part.data)
    return out


def part_from_proto(part: contents.Content) -> Content:
    """One part of a message. A part of an unknown kind is `ContentData`, and returns unchanged."""
    internal = json.loads(part.internal_json) if part.internal_json else None
    kind = part.WhichOneof("part")
    if kind == "text":
        text = part.text
        return ContentText(
            internal=internal,
            text=text.text,
            refusal=text.refusal if text.HasField("refusal") else None,
            citations=[_citation_from_proto(citation) for citation in text.citations] or None,
            cache_breakpoint=text.cache_breakpoint if text.HasField("cache_breakpoint") else None,
        )
    if kind == "reasoning":
        reasoning = part.reasoning
        if reasoning.sealed_by and (internal is None or isinstance(internal, dict)):
            internal = {**(internal or {}), _SEALED_BY: reasoning.sealed_by}
        return ContentReasoning(
            internal=internal,
            reasoning=reasoning.reasoning,
            summary=reasoning.summary if reasoning.HasField("summary") else None,
            signature=reasoning.signature if reasoning.HasField("signature") else None,
            redacted=reasoning.redacted,
        )
    if kind == "image":
        detail = _DETAIL_NAMES.get(part.image.detail, "auto")
        return ContentImage(
            internal=internal,
            image=part.image.media.uri,
            detail=cast("Literal['auto', 'low', 'high', 'original']", detail),
        )
    if kind == "audio":
        audio_format = cast("Literal['wav', 'mp3']", _AUDIO_FORMAT_NAMES.get(part.audio.format, "wav"))
        return ContentAudio(internal=internal, audio=part.audio.media.uri, format=audio_format)
    if kind == "video":
        video_format = cast("Literal['mp4', 'mpeg', 'mov']", _VIDEO_FORMAT_NAMES.get(part.video.format, "mp4"))
        return ContentVideo(internal=internal, video=part.video.media.uri, format=video_format)
    if kind == "document":
        document = part.document
        return ContentDocument(
            internal=internal,
            document=document.media.uri,
            filename=document.filename,
            mime_type=document.mime_type,
            citations=document.citations,
        )
    if kind == "data":
        return ContentData(internal=internal, data=json.loads(part.data.json))
    if kind == "tool_use" and part.tool_use.tool_type in _TOOL_USE_NAMES:
        use = part.tool_use
        tool_type = cast("Literal['web_search', 'mcp_call', 'code_execution']", _TOOL_USE_NAMES[use.tool_type])
        return ContentToolUse(
            internal=internal,
            tool_type=tool_type,
            id=use.id,
            name=use.name,
            context=use.context if use.HasField("context") else None,
            arguments=use.arguments,
            result=use.result,
            error=use.error if use.HasField("error") else None,
        )
    return ContentData(data={_UNKNOWN: json_format.MessageToDict(part)})


def _citation_to_proto(citation: Citation) -> contents.Citation:
    out = contents.Citation()
    if citation.internal is not None:
        out.internal_json = to_json(citation.internal)
    if citation.title is not None:
        out.title = citation.title
    if isinstance(citation.cited_text, str):
        out.cited_text = citation.cited_text
    elif citation.cited_text is not None:
        out.cited_range.start, out.cited_range.end = citation.cited_text
    if isinstance(citation, UrlCitation):
        out.url = citation.url
    elif isinstance(citation, DocumentCitation):
        out.document.SetInParent()
        if citation.range is not None:
            out.document.type = _RANGES[citation.range.type]
            out.document.start_index = citation.range.start_index
            out.document.end_index = citation.range.end_index
    return out


def _citation_from_proto(citation: contents.Citation) -> Citation:
    cited: str | tuple[int, int] | None = None
    if citation.WhichOneof("cited") == "cited_text":
        cited = citation.cited_text
    elif citation.WhichOneof("cited") == "cited_range":
        cited = (citation.cited_range.start, citation.cited_range.end)
    common: dict[str, Any] = {
        "cited_text": cited,
        "title": citation.title if citation.HasField("title") else None,
        "internal": _object(citation.internal_json),
    }
    source = citation.WhichOneof("source")
    if source == "url":
        return UrlCitation(**common, url=citation.url)
    if source == "document":
        kind = _RANGE_NAMES.get(citation.document.type)
        return DocumentCitation(
            **common,
            range=DocumentRange(
                type=cast("Literal['block', 'page', 'char']", kind),
                start_index=citation.document.start_index,
                end_index=citation.document.end_index,
            )
            if kind
            else None,
        )
    return ContentCitation(**common)
