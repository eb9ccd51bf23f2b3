"""The model API `evalfleet`: any model of an evalfleet server, as `evalfleet/PROVIDER/MODEL`."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from logging import getLogger
from pathlib import Path
from typing import Any, Literal

from evalfleet.blobs import AsyncBlobs
from evalfleet.connection import Connection, Stream, Stubs
from evalfleet.exceptions import CapabilityUnsupported, ConnectionQueueFull, EvalfleetError
from evalfleet.model.v1 import model_service_pb2 as calls
from inspect_ai._util.error import PrerequisiteError
from inspect_ai._util.retry import report_http_retry
from inspect_ai.model import (
    CachePolicy,
    ChatMessage,
    ChatMessageUser,
    GenerateConfig,
    ModelAPI,
    ModelCall,
    ModelOutput,
    ModelUsage,
    RetryDecision,
    modelapi,
)
from inspect_ai.model._stream import (
    StreamReasoningEvent,
    StreamTextEvent,
    StreamToolCallEvent,
    model_stream_requested,
    report_model_stream_delta,
    report_model_stream_progress,
    report_model_stream_restart,
    report_model_stream_start,
)
from inspect_ai.tool import ToolChoice, ToolInfo
from inspect_ai.util import warn_once
from typing_extensions import override

from .attribution import attribution
from .connection import Target, apart, connection
from .errors import ModelServerError, model_error, prerequisites, recorded_call
from .messages import message_from_proto, messages_to_proto, to_json
from .options import cache_to_proto, choice_to_proto, config_to_proto, tools_to_proto
from .output import call_from_proto, output_from_proto, usage_from_proto
from .release import Releases

logger = getLogger(__name__)

KEY_REFUSED = (
    "api_key is refused: the server has the keys of providers, in its environment or configuration; "
    "name another account with -M account=NAME"
)


@modelapi(name="evalfleet")
class EvalfleetModelAPI(ModelAPI):
    """A model of an evalfleet server, which has the keys, and retries, limits and caches calls for all of its clients.

    Args:
        model_name: `PROVIDER/MODEL`, such as `openai/gpt-4o`.
        base_url: The provider's address, if the account allows several.
        api_key: Refused: keys are the server's.
        config: The options of the model.
        server: The server, `host:port`; default EVALFLEET_SERVER, then the one that holds the data directory.
        token_file: A file with the token; default EVALFLEET_TOKEN_FILE or EVALFLEET_TOKEN.
        project: The project; default EVALFLEET_PROJECT, then `default`.
        patience: Seconds for which a call is repeated while the server is away; default EVALFLEET_PATIENCE, then 60.
        account: The provider's account, by its configured name.
        cache: Answers come from the server's cache: true, or how long it keeps them, such as `1W`. Inspect's own option
            `cache` adds its cache of files in front.
        fallbacks: Whether a model that the server's configuration names may stand in; default: the server's rule.
        model_args: Arguments of the provider, as with Inspect's own, such as `responses_api`.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008 - as the base class has it
        server: str | None = None,
        token_file: str | None = None,
        project: str | None = None,
        patience: float | None = None,
        account: str | None = None,
        cache: bool | str | None = None,
        fallbacks: bool | None = None,
        **model_args: Any,
    ) -> None:
        super().__init__(model_name=model_name, base_url=base_url, api_key=api_key, config=config)
        if "/" not in model_name:
            raise PrerequisiteError(f"evalfleet/{model_name} names no provider: write evalfleet/PROVIDER/MODEL")
        if api_key is not None:
            raise PrerequisiteError(KEY_REFUSED)
        self._target = Target(server=server, token_file=token_file, project=project, patience=patience)
        self._fixed = calls.GenerateRequest(
            model=model_name,
            account=account or "",
            base_url=base_url or "",
            model_args_json=to_json(model_args) if model_args else "",
            record_call=True,
        )
        if fallbacks is not None:
            self._fixed.fallbacks = fallbacks
        self._cache = _policy(cache)
        self._answered = Releases(_release)
        with prerequisites(f"model evalfleet/{model_name}"):
            self._warn(apart(self._target, lambda server: self._check(server, config, model_args)))

    async def _check(
        self, server: Connection, config: GenerateConfig, model_args: dict[str, Any]
    ) -> calls.GenerateResponse:
        """Finds out before the first sample what would fail in each: no server, no key, an unknown model."""
        script = _script(self.model_name, model_args)
        if script is not None:
            body = await AsyncBlobs(server).put(script)
            self._fixed.model_args_json = to_json({**model_args, "script": f"blob:{body.hash}"})
        request = self._request([], [], "auto", config, server)
        request.validate_only = True
        request.ClearField("request_id")
        return await server.call(lambda stubs: stubs.models.Generate, request)

    # ---- calls

    @override
    async def generate(
        self,
        input: list[ChatMessage],
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput | tuple[ModelOutput | Exception, ModelCall]:
        server = connection(self._target)
        request = self._request(input, tools, tool_choice, config, server)
        try:
            if model_stream_requested():
                response = await self._streamed(server, request)
            else:
                response = await server.call(lambda stubs: stubs.models.Generate, request)
        except asyncio.CancelledError:
            cancel = calls.CancelGenerateRequest(parent=request.parent, request_id=request.request_id)
            server.later(server.call(lambda stubs: stubs.models.CancelGenerate, cancel))
            raise
        except EvalfleetError as error:
            failure = model_error(error)
            call = recorded_call(error)
            if call is None or self.should_retry(failure):
                raise failure from error
            return failure, call_from_proto(call)
        self._answered.add(server, request.request_id)
        return self._answer(response)

    def _request(
        self,
        input: list[ChatMessage],
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
        server: Connection,
    ) -> calls.GenerateRequest:
        request = calls.GenerateRequest(
            parent=server.parent,
            # The call happens once under its key: a server that was away answers the repeated request with it.
            request_id=f"inspect-{uuid.uuid4().hex}",
            attribution=attribution("agent"),
            messages=messages_to_proto(input),
            tools=tools_to_proto(tools),
            tool_choice=choice_to_proto(tool_choice),
            config=config_to_proto(config),
        )
        request.MergeFrom(self._fixed)
        if self._cache is not None and not request.config.HasField("cache"):
            request.config.cache.CopyFrom(cache_to_proto(self._cache))
        return request

    def _answer(self, response: calls.GenerateResponse) -> tuple[ModelOutput, ModelCall] | ModelOutput:
        self._warn(response)
        for _ in response.failed_attempts:
            # Inspect counts and shows retries. Its own limit of connections stays: the server has lowered its.
            report_http_retry(model=self.qualified_model_name)
        output = output_from_proto(response.output)
        notes: dict[str, Any] = {}
        if response.cache == calls.CACHE_USE_READ:
            # No tokens were spent, so that none count against a limit.
            notes["cache"] = "read"
            if output.usage is not None:
                notes["cached_usage"] = output.usage.model_dump(exclude_none=True)
                output.usage = None
        if response.broken_off:
            notes["broken_off"] = True
        if response.model and response.model != self.model_name:
            notes["model"] = response.model
        if notes:
            output.metadata = {**(output.metadata or {}), "evalfleet": notes}
        if not response.HasField("call"):
            return output
        call = call_from_proto(response.call)
        if call.time is None and response.timing.HasField("working"):
            # The time of the answer alone: Inspect counts the rest, queues and retries, as waiting.
            call.time = response.timing.working.ToNanoseconds() / 1e9
        return output, call

    async def _streamed(self, server: Connection, request: calls.GenerateRequest) -> calls.GenerateResponse:
        cursor = ""

        def reopen(stubs: Stubs) -> Stream[calls.StreamGenerateResponse]:
            if not cursor:
                first = calls.StreamGenerateRequest(request=request)
                return stubs.models.StreamGenerate(first, metadata=server.metadata())
            attach = calls.AttachGenerateRequest(parent=request.parent, request_id=request.request_id, cursor=cursor)
            return stubs.models.AttachGenerate(attach, metadata=server.metadata())

        report_model_stream_start()
        names: dict[int, tuple[str, str]] = {}
        completed: calls.GenerateResponse | None = None
        async for event in server.follow(reopen):
            cursor = event.cursor or cursor
            kind = event.WhichOneof("event")
            if kind == "restart":
                names.clear()
                await report_model_stream_restart()
            elif kind == "delta" and event.delta.choice == 0 and model_stream_requested():
                await _delta(event.delta, names)
            elif kind == "completed":
                completed = event.completed
            else:
                report_model_stream_progress()
        if completed is None:
            raise ModelServerError(EvalfleetError("the server ended the stream of an answer before its end"))
        return completed

    def _warn(self, response: calls.GenerateResponse) -> None:
        for warning in response.warnings:
            warn_once(logger, f"evalfleet/{self.model_name}: {warning}")
        for option in response.unsent_options:
            warn_once(logger, f"evalfleet/{self.model_name}: the option {option} is not sent: its API does not take it")

    @override
    async def count_tokens(self, input: str | list[ChatMessage], config: GenerateConfig | None = None) -> int:
        server = connection(self._target)
        conversation = input if isinstance(input, list) else [_user(input)]
        request = calls.CountTokensRequest(
            parent=server.parent,
            model=self.model_name,
            account=self._fixed.account,
            model_args_json=self._fixed.model_args_json,
            messages=messages_to_proto(conversation),
        )
        try:
            response = await server.call(lambda stubs: stubs.models.CountTokens, request)
        except EvalfleetError as error:
            raise model_error(error) from error
        return response.message_tokens

    @override
    async def compact(
        self,
        input: list[ChatMessage],
        tools: list[ToolInfo],
        config: GenerateConfig,
        instructions: str | None = None,
    ) -> tuple[list[ChatMessage], ModelUsage | None]:
        server = connection(self._target)
        request = calls.CompactRequest(
            parent=server.parent,
            request_id=f"inspect-{uuid.uuid4().hex}",
            attribution=attribution("agent"),
            model=self.model_name,
            account=self._fixed.account,
            base_url=self._fixed.base_url,
            model_args_json=self._fixed.model_args_json,
            messages=messages_to_proto(input),
            tools=tools_to_proto(tools),
            config=config_to_proto(config),
            instructions=instructions or "",
        )
        try:
            response = await server.call(lambda stubs: stubs.models.Compact, request)
        except CapabilityUnsupported as error:
            raise NotImplementedError(str(error)) from error
        except EvalfleetError as error:
            raise model_error(error) from error
        usage = usage_from_proto(response.usage) if response.HasField("usage") else None
        return [message_from_proto(message) for message in response.messages], usage

    # ---- what Inspect leaves to a provider

    @override
    def should_retry(self, ex: Exception) -> RetryDecision:
        # The server retries what can be retried, as often as max_retries and timeout say. A full queue has only to be
        # waited for: nothing of the call has begun.
        if isinstance(ex, ModelServerError) and ex.reason == ConnectionQueueFull.reason:
            return RetryDecision.rate_limit(retry_after=ex.retry_after)
        return RetryDecision.no()

    @override
    def is_auth_failure(self, ex: Exception) -> bool:
        return isinstance(ex, ModelServerError) and ex.credentials

    @override
    def connection_key(self) -> str:
        return f"{self._target.server}:{self.model_name}:{self._fixed.account}:{self._fixed.base_url}"

    @override
    def tool_result_images(self) -> bool:
        return True

    @override
    def tool_result_documents(self) -> bool:
        return True

    @override
    def disable_computer_screenshot_truncation(self) -> bool:
        # As with Inspect's own provider: OpenAI's calls of a computer need the screenshot of each result.
        return self.model_name.startswith("openai/")

    @override
    def supports_remote_mcp(self) -> bool:
        return True

    @override
    def tools_required(self) -> bool:
        return True

    @override
    def force_reasoning_history(self) -> Literal["none", "all", "last"] | None:
        # The server leaves out what the option or the provider does not want.
        return "all"


def _release(server: Connection, keys: list[str]) -> Coroutine[Any, Any, calls.ReleaseGenerateResponse]:
    request = calls.ReleaseGenerateRequest(parent=server.parent, request_ids=keys)
    return server.call(lambda stubs: stubs.models.ReleaseGenerate, request)


async def _delta(delta: calls.GenerateDelta, names: dict[int, tuple[str, str]]) -> None:
    """Reports a piece of the first choice. Each piece of a tool's call has its id and name, as Inspect wants them."""
    piece = delta.WhichOneof("piece")
    if piece == "text":
        await report_model_stream_delta(StreamTextEvent(text=delta.text))
    elif piece == "reasoning":
        await report_model_stream_delta(StreamReasoningEvent(reasoning=delta.reasoning))
    elif piece == "tool_call":
        call = delta.tool_call
        if call.id or call.function:
            names[call.index] = (call.id, call.function)
        id, function = names.get(call.index, ("", ""))
        await report_model_stream_delta(
            StreamToolCallEvent(id=id or None, function=function or None, arguments=call.arguments)
        )
    else:
        report_model_stream_progress()


def _script(model: str, model_args: dict[str, Any]) -> Path | None:
    """The file with the script of a scripted model, which travels as a body, as with the command line."""
    script = model_args.get("script")
    return Path(script) if model.startswith("mockllm/") and isinstance(script, str) and Path(script).is_file() else None


def _user(text: str) -> ChatMessage:
    return ChatMessageUser(content=text)


def _policy(cache: bool | str | None) -> bool | CachePolicy | None:
    if cache is None or isinstance(cache, bool):
        return cache
    policy = CachePolicy.from_string(cache)
    if policy is None:
        raise PrerequisiteError(f"-M cache={cache}: write true, or a number with s, m, h, D, W, M or Y, such as 1W")
    return policy
