"""A model's output, from evalfleet's protocol to inspect_ai's classes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from evalfleet.model.v1 import message_pb2 as messages
from inspect_ai.model import (
    ChatCompletionChoice,
    Logprob,
    Logprobs,
    ModelCall,
    ModelFallback,
    ModelOutput,
    ModelUsage,
    StopCategory,
    StopDetails,
    StopReason,
    TopLogprob,
)

from .messages import assistant_from_proto

_STOPS: dict[int, StopReason] = {
    messages.STOP_REASON_STOP: "stop",
    messages.STOP_REASON_MAX_TOKENS: "max_tokens",
    messages.STOP_REASON_MODEL_LENGTH: "model_length",
    messages.STOP_REASON_TOOL_CALLS: "tool_calls",
    messages.STOP_REASON_CONTENT_FILTER: "content_filter",
}


def output_from_proto(output: messages.ModelOutput) -> ModelOutput:
    """An output with all of its choices. A stop reason of a later server is `unknown`."""
    return ModelOutput(
        model=output.model,
        choices=[_choice(choice) for choice in output.choices],
        completion=output.completion,
        usage=usage_from_proto(output.usage) if output.HasField("usage") else None,
        input_context_tokens=_optional(output, "input_context_tokens"),
        fallback=_fallback(output.fallback) if output.HasField("fallback") else None,
        time=_optional(output, "time"),
        metadata=json.loads(output.metadata_json) if output.metadata_json else None,
        error=_optional(output, "error"),
        response_id=_optional(output, "response_id"),
    )


def usage_from_proto(usage: messages.ModelUsage) -> ModelUsage:
    """Tokens of a call, and dollars if the server knows the prices."""
    return ModelUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        input_tokens_cache_write=_optional(usage, "input_tokens_cache_write"),
        input_tokens_cache_read=_optional(usage, "input_tokens_cache_read"),
        reasoning_tokens=_optional(usage, "reasoning_tokens"),
        total_cost=_optional(usage, "total_cost"),
    )


def call_from_proto(call: messages.ModelCall) -> ModelCall:
    """The exchange with the provider, for the log."""
    return ModelCall(
        request=json.loads(call.request_json) if call.request_json else {},
        response=json.loads(call.response_json) if call.response_json else None,
        error=True if call.error else None,
        time=_optional(call, "time"),
    )


def _choice(choice: messages.Choice) -> ChatCompletionChoice:
    return ChatCompletionChoice(
        message=assistant_from_proto(choice.message),
        stop_reason=_STOPS.get(choice.stop_reason, "unknown"),
        stop_details=_details(choice.stop_details) if choice.HasField("stop_details") else None,
        logprobs=_logprobs(choice.logprobs) if choice.HasField("logprobs") else None,
        prompt_logprobs=_logprobs(choice.prompt_logprobs) if choice.HasField("prompt_logprobs") else None,
    )


def _details(details: messages.StopDetails) -> StopDetails:
    return StopDetails(
        type=details.type or None,
        category=details.category or None,
        explanation=details.explanation or None,
        categories=[StopCategory(category=c.category, level=c.level or None) for c in details.categories],
    )


def _logprobs(logprobs: messages.Logprobs) -> Logprobs:
    return Logprobs(
        content=[
            Logprob(
                token=token.token,
                logprob=token.logprob,
                bytes=_bytes(token.bytes),
                top_logprobs=[
                    TopLogprob(token=top.token, logprob=top.logprob, bytes=_bytes(top.bytes))
                    for top in token.top_logprobs
                ]
                or None,
            )
            for token in logprobs.content
        ]
    )


def _bytes(values: Sequence[int]) -> list[int] | None:
    return list(values) or None


def _fallback(fallback: messages.ModelFallback) -> ModelFallback:
    return ModelFallback(
        model=fallback.model,
        fallback_model=fallback.fallback_model,
        count=fallback.count,
        metadata=json.loads(fallback.metadata_json) if fallback.metadata_json else None,
    )


def _optional(message: Any, field: str) -> Any:
    """The value of an optional field, or None if it is not set."""
    return getattr(message, field) if message.HasField(field) else None
