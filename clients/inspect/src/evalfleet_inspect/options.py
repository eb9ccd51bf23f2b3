"""Tools and options of a call, from inspect_ai's classes to evalfleet's protocol.

An option either reaches the protocol, or Inspect itself carries it out, or the call is refused by the option's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from evalfleet.model.v1 import config_pb2 as configs
from evalfleet.tool.v1 import tool_pb2 as tools
from inspect_ai.model import BatchConfig, CachePolicy, GenerateConfig, ImageOutput, ResponseSchema
from inspect_ai.tool import ToolChoice, ToolFunction, ToolInfo
from inspect_ai.util import AdaptiveConcurrency
from inspect_ai.util._json import json_schema_dump

from .messages import to_json

OF_INSPECT = frozenset({"system_message", "fail_on_refusal", "max_tool_output"})
"""Options that Inspect carries out around the call: it puts the system message before the conversation, makes a
refusal an error, and truncates results of tools."""

_SCALARS = frozenset(
    {
        "max_retries",
        "timeout",
        "stream_idle_timeout",
        "attempt_timeout",
        "max_connections",
        "max_tokens",
        "top_p",
        "temperature",
        "best_of",
        "frequency_penalty",
        "presence_penalty",
        "seed",
        "top_k",
        "num_choices",
        "logprobs",
        "top_logprobs",
        "prompt_logprobs",
        "parallel_tool_calls",
        "internal_tools",
        "verbosity",
        "effort",
        "reasoning_effort",
        "reasoning_mode",
        "reasoning_tokens",
        "reasoning_summary",
    }
)
"""Options with the same name and the same value in the protocol."""

_HISTORIES = {
    "none": configs.REASONING_HISTORY_NONE,
    "all": configs.REASONING_HISTORY_ALL,
    "last": configs.REASONING_HISTORY_LAST,
    "auto": configs.REASONING_HISTORY_AUTO,
}

_CHOICES = {
    "auto": tools.TOOL_CHOICE_MODE_AUTO,
    "any": tools.TOOL_CHOICE_MODE_ANY,
    "none": tools.TOOL_CHOICE_MODE_NONE,
}


class OptionRefusedError(ValueError):
    """An option that evalfleet cannot honour. The message names it and what to do instead."""


def tools_to_proto(offered: Iterable[ToolInfo]) -> list[tools.ToolInfo]:
    """The tools on offer, with the schemas of their arguments and the options for providers."""
    return [
        tools.ToolInfo(
            name=tool.name,
            description=tool.description,
            parameters_json=to_json(tool.parameters.model_dump(exclude_none=True)),
            options_json=to_json(tool.options) if tool.options is not None else "",
        )
        for tool in offered
    ]


def choice_to_proto(choice: ToolChoice) -> tools.ToolChoice:
    """Which tools the model may or must call."""
    if isinstance(choice, ToolFunction):
        return tools.ToolChoice(function=choice.name)
    return tools.ToolChoice(mode=_CHOICES[choice])


def config_to_proto(config: GenerateConfig) -> configs.GenerateConfig:
    """The options that are set, without those that Inspect carries out.

    Raises:
        OptionRefusedError: An option of a later inspect_ai that this package does not know, or a value that the
            protocol cannot represent.
    """
    out = configs.GenerateConfig()
    for name in type(config).model_fields:
        value = getattr(config, name)
        if value is None or name in OF_INSPECT:
            continue
        try:
            if name in _SCALARS:
                setattr(out, name, value)
            elif name in _COMPOUND:
                _COMPOUND[name](out, value)
            else:
                raise OptionRefusedError(
                    f"the option {name} is newer than this version of evalfleet-inspect: leave it out, or update it"
                )
        except (TypeError, ValueError) as error:
            if isinstance(error, OptionRefusedError):
                raise
            raise OptionRefusedError(f"the option {name} cannot be sent: {error}") from error
    return out


def _adaptive(out: configs.GenerateConfig, value: bool | int | AdaptiveConcurrency) -> None:
    adaptive = out.adaptive_connections
    if isinstance(value, bool):
        adaptive.enabled = value
    elif isinstance(value, int):
        adaptive.max = value
    else:
        for name in ("min", "start", "max", "cooldown_seconds", "decrease_factor", "scale_up_percent"):
            setattr(adaptive, name, getattr(value, name))


def _cache_prompt(out: configs.GenerateConfig, value: str | bool) -> None:
    if value == "auto":
        out.cache_prompt = configs.CACHE_PROMPT_AUTO
    else:
        out.cache_prompt = configs.CACHE_PROMPT_ON if value else configs.CACHE_PROMPT_OFF


def _reasoning_history(out: configs.GenerateConfig, value: str) -> None:
    out.reasoning_history = _HISTORIES[value]


def _response_schema(out: configs.GenerateConfig, value: ResponseSchema) -> None:
    out.response_schema.name = value.name
    out.response_schema.json_schema = to_json(json_schema_dump(value.json_schema))
    if value.description is not None:
        out.response_schema.description = value.description
    if value.strict is not None:
        out.response_schema.strict = value.strict


def _modalities(out: configs.GenerateConfig, value: list[str | ImageOutput]) -> None:
    out.modalities.SetInParent()
    for modality in value:
        if isinstance(modality, str):
            out.modalities.values.add(type=modality)
        else:
            options = to_json(modality.options) if modality.options is not None else ""
            out.modalities.values.add(type="image", options_json=options)


def _cache(out: configs.GenerateConfig, value: bool | CachePolicy) -> None:
    out.cache.CopyFrom(cache_to_proto(value))


def cache_to_proto(value: bool | CachePolicy) -> configs.CacheSetting:
    """A policy of caching; True has the defaults of the policy."""
    if isinstance(value, bool):
        return configs.CacheSetting(enabled=value)
    policy = configs.CachePolicy(
        expiry="never" if value.expiry is None else value.expiry, per_epoch=value.per_epoch, scopes=value.scopes
    )
    return configs.CacheSetting(enabled=True, policy=policy)


def _batch(out: configs.GenerateConfig, value: bool | int | BatchConfig) -> None:
    batch = out.batch
    if isinstance(value, bool):
        batch.enabled = value
        return
    if isinstance(value, int):
        batch.enabled, batch.size = value != 0, value
        return
    batch.enabled = True
    for name in ("size", "max_size", "max_batches", "max_consecutive_check_failures"):
        if getattr(value, name) is not None:
            setattr(batch, name, getattr(value, name))
    for name in ("send_delay", "tick"):
        seconds = getattr(value, name)
        if seconds is not None:
            getattr(batch, name).FromNanoseconds(round(seconds * 1e9))


def _values(name: str) -> Callable[[configs.GenerateConfig, Any], None]:
    """Fills the wrapper of a list or of a map: an empty one counts as set."""

    def fill(out: configs.GenerateConfig, value: Any) -> None:
        wrapper = getattr(out, name)
        wrapper.SetInParent()
        wrapper.MergeFrom(type(wrapper)(values=value))

    return fill


def _extra_body(out: configs.GenerateConfig, value: dict[str, Any]) -> None:
    out.extra_body_json = to_json(value)


_COMPOUND: dict[str, Callable[[configs.GenerateConfig, Any], None]] = {
    "adaptive_connections": _adaptive,
    "stop_seqs": _values("stop_seqs"),
    "logit_bias": _values("logit_bias"),
    "cache_prompt": _cache_prompt,
    "fallback_models": _values("fallback_models"),
    "reasoning_history": _reasoning_history,
    "response_schema": _response_schema,
    "extra_headers": _values("extra_headers"),
    "extra_body": _extra_body,
    "modalities": _modalities,
    "cache": _cache,
    "batch": _batch,
}
"""Options that are messages of their own in the protocol."""
