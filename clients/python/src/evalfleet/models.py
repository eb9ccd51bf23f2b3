"""Calls of models."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf.message import Message
from grpc import aio

from evalfleet import durations
from evalfleet import messages as plain
from evalfleet.connection import Connection, Stream, Stubs
from evalfleet.exceptions import EffectIndeterminate
from evalfleet.keys import new_key
from evalfleet.messages import Answer, Conversation
from evalfleet.model.v1 import model_service_pb2 as pb
from evalfleet.model.v1.config_pb2 import GenerateConfig
from evalfleet.model.v1.message_pb2 import ROLE_SYSTEM, ChatMessage
from evalfleet.tool.v1.tool_pb2 import ToolChoice, ToolInfo

Call = TypeVar("Call", pb.GenerateRequest, pb.CompactRequest)
Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True)
class Piece:
    """A piece of an answer that is streamed."""

    text: str = ""
    reasoning: str = ""
    restarted: bool = False
    """The attempt failed and another has begun: all earlier pieces are void."""
    answer: Answer | None = None
    """With the last piece: the whole answer."""
    event: pb.StreamGenerateResponse | None = None
    """The event of the protocol, with pieces of tool calls and of other choices."""


class AsyncModels:
    """Models of any configured provider, as `provider/name`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def generate(
        self,
        model: str,
        messages: Conversation,
        *,
        tools: Sequence[Mapping[str, Any] | ToolInfo] = (),
        tool_choice: str | ToolChoice | None = None,
        config: Mapping[str, Any] | GenerateConfig | None = None,
        model_args: Mapping[str, Any] | None = None,
        account: str = "",
        timeout: float | None = None,
        key: str | None = None,
        request: pb.GenerateRequest | None = None,
    ) -> Answer:
        """Calls a model and returns its answer.

        Args:
            model: The model, such as `openai/gpt-4o`.
            messages: The conversation: a text, or messages as dicts with `role` and `content`.
            tools: Tools on offer, as dicts with `name`, `description` and `parameters` (a JSON Schema).
            tool_choice: `auto` (the default), `any`, `none`, or the name of the one tool to call.
            config: How to generate: members of GenerateConfig, such as `temperature`, `max_tokens`, `stop_seqs`.
            model_args: Arguments of the provider, such as `responses_api`.
            account: The provider's account; default `default`.
            timeout: Seconds for the whole call with its retries; then it raises DeadlineExceeded.
            key: A key of your own. A call with a key that was used before gets the same answer again, and a cancelled
                task leaves the call running. By default each call has a new key, its answer is not kept, and
                cancelling the task cancels the call.
            request: Further members of the request, which the arguments override.
        """
        call = self._request(model, messages, tools, tool_choice, config, model_args, account, timeout, key, request)
        return Answer(await self._effect(lambda stubs: stubs.models.Generate, call, timeout=timeout, key=key))

    async def stream(
        self,
        model: str,
        messages: Conversation,
        *,
        tools: Sequence[Mapping[str, Any] | ToolInfo] = (),
        tool_choice: str | ToolChoice | None = None,
        config: Mapping[str, Any] | GenerateConfig | None = None,
        model_args: Mapping[str, Any] | None = None,
        account: str = "",
        timeout: float | None = None,
        key: str | None = None,
        request: pb.GenerateRequest | None = None,
    ) -> AsyncIterator[Piece]:
        """Calls a model and yields its answer in pieces, the last of them with the whole `answer`.

        The arguments are those of `generate`. After a lost connection it continues with the next piece.
        Leaving the iteration cancels the call, unless it has a key of yours.
        """
        call = self._request(model, messages, tools, tool_choice, config, model_args, account, timeout, key, request)
        cursor, done = "", False

        def reopen(stubs: Stubs) -> Stream[pb.StreamGenerateResponse]:
            metadata = self._connection.metadata()
            if not cursor:
                return stubs.models.StreamGenerate(pb.StreamGenerateRequest(request=call), metadata=metadata)
            attach = pb.AttachGenerateRequest(parent=call.parent, request_id=call.request_id, cursor=cursor)
            return stubs.models.AttachGenerate(attach, metadata=metadata)

        async def follow() -> AsyncIterator[pb.StreamGenerateResponse]:
            nonlocal call, cursor
            call = await self._connection.fit(call)
            while True:
                try:
                    async for event in self._connection.follow(reopen):
                        yield event
                    return
                except EffectIndeterminate:
                    if not cursor:
                        raise
                    # The server that made the call has died. The call, repeated with its key, is made again.
                    cursor = ""
                    yield pb.StreamGenerateResponse(restart=pb.GenerateRestart())

        def end() -> Coroutine[Any, Any, None]:
            return self._release(call.request_id) if done else self._cancel(call.request_id)

        with self._connection.effect(end if key is None else None):
            async for event in self._connection.each_within(timeout, follow()):
                cursor = event.cursor or cursor
                kind = event.WhichOneof("event")
                if kind == "delta":
                    yield Piece(
                        text=event.delta.text if event.delta.choice == 0 else "",
                        reasoning=event.delta.reasoning,
                        event=event,
                    )
                elif kind == "restart":
                    yield Piece(restarted=True, event=event)
                elif kind == "completed":
                    done = True
                    yield Piece(answer=Answer(event.completed), event=event)
        if key is None:
            self._connection.later(self._release(call.request_id))

    async def count_tokens(
        self, model: str, messages: Conversation, *, tools: Sequence[Mapping[str, Any] | ToolInfo] = ()
    ) -> pb.CountTokensResponse:
        """Counts the tokens of messages and tools, by the provider's count if it has one, else by an estimate."""
        request = pb.CountTokensRequest(
            parent=self._connection.parent,
            model=model,
            messages=plain.conversation(messages),
            tools=[plain.tool_of(tool) for tool in tools],
        )
        return await self._connection.call(lambda stubs: stubs.models.CountTokens, request)

    async def compact(
        self,
        model: str,
        messages: Conversation,
        *,
        instructions: str = "",
        tools: Sequence[Mapping[str, Any] | ToolInfo] = (),
        config: Mapping[str, Any] | GenerateConfig | None = None,
        model_args: Mapping[str, Any] | None = None,
        account: str = "",
        timeout: float | None = None,
        key: str | None = None,
    ) -> list[ChatMessage]:
        """Shortens a conversation by the provider's own compaction, and returns the messages to continue with.

        These are the system messages of the conversation and, in place of all others, data that only the same provider
        reads: send them unchanged, before those that follow. A provider, model or server without compaction raises
        CapabilityUnsupported.

        Args:
            model: The model, such as `openai/gpt-5`.
            messages: The conversation, as for `generate`.
            instructions: What to preserve; default: the provider's own instructions.
            tools: Tools on offer in the conversation, which some providers require for its calls.
            config: How to generate, as for `generate`.
            model_args: Arguments of the provider.
            account: The provider's account; default `default`.
            timeout: Seconds for the whole call with its retries; then it raises DeadlineExceeded.
            key: A key of your own, as for `generate`.
        """
        conversation = plain.conversation(messages)
        call = pb.CompactRequest(
            parent=self._connection.parent,
            request_id=key or new_key(),
            model=model,
            messages=conversation,
            instructions=instructions,
            tools=[plain.tool_of(tool) for tool in tools],
            config=plain.config_of(config),
            model_args_json=json.dumps(dict(model_args)) if model_args else "",
            account=account,
            timeout=durations.of_seconds(timeout),
        )
        compacted = await self._effect(lambda stubs: stubs.models.Compact, call, timeout=timeout, key=key)
        return [*(message for message in conversation if message.role == ROLE_SYSTEM), *compacted.messages]

    async def get(self, model: str) -> pb.Model:
        """What is known of a model, such as `openai/gpt-4o`: its limits, capabilities and prices."""
        provider, _, name = model.partition("/")
        request = pb.GetModelRequest(name=f"providers/{provider}/models/{name}")
        return await self._connection.call(lambda stubs: stubs.models.GetModel, request)

    async def providers(self) -> list[pb.Provider]:
        """The providers, each with the accounts that this project may use, and whether these have keys."""
        request = pb.ListProvidersRequest(parent=self._connection.parent, page_size=1000)
        pages = self._connection.pages(lambda stubs: stubs.models.ListProviders, request)
        return [provider async for page in pages for provider in page.providers]

    async def check(self, model: str = "", *, provider: str = "", account: str = "") -> list[pb.AccountCheck]:
        """Asks the vendors whether accounts can be used, for each of their keys. No model is called.

        A check that fails is a result, whose `failed` is true, and no exception.

        Args:
            model: Only accounts of this model's provider, and whether the vendor lists the model.
            provider: Only accounts of this provider.
            account: Only the account of this name.
        """
        request = pb.CheckAccountsRequest(model=model, provider=provider, account=account)
        return list((await self._connection.call(lambda stubs: stubs.models.CheckAccounts, request)).checks)

    async def list(self, provider: str = "") -> list[pb.Model]:
        """The models with known names, of all providers or of one. Providers accept other names too."""
        request = pb.ListModelsRequest(provider=provider, page_size=1000)
        pages = self._connection.pages(lambda stubs: stubs.models.ListModels, request)
        return [model async for page in pages for model in page.models]

    def _request(
        self,
        model: str,
        messages: Conversation,
        tools: Sequence[Mapping[str, Any] | ToolInfo],
        tool_choice: str | ToolChoice | None,
        config: Mapping[str, Any] | GenerateConfig | None,
        model_args: Mapping[str, Any] | None,
        account: str,
        timeout: float | None,
        key: str | None,
        request: pb.GenerateRequest | None,
    ) -> pb.GenerateRequest:
        call = pb.GenerateRequest()
        if request is not None:
            call.CopyFrom(request)
        call.MergeFrom(
            pb.GenerateRequest(
                parent=self._connection.parent,
                request_id=key or new_key(),
                model=model,
                messages=plain.conversation(messages),
                tools=[plain.tool_of(tool) for tool in tools],
                tool_choice=plain.tool_choice_of(tool_choice),
                config=plain.config_of(config),
                model_args_json=json.dumps(dict(model_args)) if model_args else "",
                account=account,
            )
        )
        if timeout is not None:
            call.timeout.CopyFrom(durations.of_seconds(timeout))
        return call

    async def _effect(
        self,
        method: Callable[[Stubs], aio.UnaryUnaryMultiCallable[Call, Response]],
        call: Call,
        *,
        timeout: float | None,
        key: str | None,
    ) -> Response:
        """Makes a call of a model. Unless its key is the caller's it ends with its task, and its result is not kept."""
        own: str = call.request_id
        with self._connection.effect((lambda: self._cancel(own)) if key is None else None):
            response = await self._connection.call(method, call, timeout=timeout)
        if key is None:
            self._connection.later(self._release(own))
        return response

    async def _cancel(self, key: str) -> None:
        await self._connection.call(
            lambda stubs: stubs.models.CancelGenerate,
            pb.CancelGenerateRequest(parent=self._connection.parent, request_id=key),
        )

    async def _release(self, key: str) -> None:
        await self._connection.call(
            lambda stubs: stubs.models.ReleaseGenerate,
            pb.ReleaseGenerateRequest(parent=self._connection.parent, request_ids=[key]),
        )
