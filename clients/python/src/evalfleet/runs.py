"""Runs of agents outside evaluations."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask

from evalfleet import messages as plain
from evalfleet.agent.v1 import run_pb2, run_service_pb2
from evalfleet.connection import Connection, Stream, Stubs
from evalfleet.keys import new_key
from evalfleet.messages import Conversation
from evalfleet.model.v1.message_pb2 import ChatMessage

_ENDED = (run_pb2.RUN_STATE_SUCCEEDED, run_pb2.RUN_STATE_FAILED, run_pb2.RUN_STATE_CANCELLED)


class AsyncRuns:
    """The runs of a project."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create(
        self,
        prompt: Conversation = (),
        *,
        model: str = "",
        agent: str | Mapping[str, Any] = "",
        tools: Sequence[str] = (),
        spec: run_pb2.RunSpec | Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> AsyncRun:
        """Creates a run of an agent, which then runs independently of this program.

        Args:
            prompt: What the agent is asked: a text, or messages.
            model: The model, `provider/name`.
            agent: The agent, such as `react`, or a dict of its name and its parameters: `{"react": {"attempts": 2}}`.
            tools: Names of tools.
            spec: The specification for what the arguments do not say, as a message or in its JSON form; the arguments
                override it.
            key: A key of your own: creating again with it returns the same run.
        """
        made = run_pb2.RunSpec()
        if isinstance(spec, run_pb2.RunSpec):
            made.CopyFrom(spec)
        elif spec is not None:
            plain.parse(spec, made)
        if isinstance(prompt, str):
            made.prompt = prompt
        else:
            made.input.extend(plain.conversation(prompt))
        if model:
            made.model.model = model
        if agent:
            name, parameters = (agent, {}) if isinstance(agent, str) else next(iter(agent.items()))
            made.steps.add(name=name, params_json=json.dumps(parameters) if parameters else "")
        for tool in tools:
            made.tools.add(name=tool)
        request = run_service_pb2.CreateRunRequest(
            parent=self._connection.parent, spec=made, request_id=key or new_key()
        )
        return AsyncRun(self._connection, await self._connection.call(lambda stubs: stubs.runs.CreateRun, request))

    async def get(self, name: str) -> AsyncRun:
        """A run by its name, `projects/…/runs/…`, or the last part of it."""
        request = run_service_pb2.GetRunRequest(name=self._connection.name("runs", name))
        return AsyncRun(self._connection, await self._connection.call(lambda stubs: stubs.runs.GetRun, request))

    async def agents(self) -> list[run_pb2.Agent]:
        """The agents and solvers that tasks and runs may name, with the schemas of their parameters."""
        request = run_service_pb2.ListAgentsRequest(parent=self._connection.parent, page_size=1000)
        pages = self._connection.pages(lambda stubs: stubs.runs.ListAgents, request)
        return [agent async for page in pages for agent in page.agents]

    async def list(self, *, eval: str = "", labels: Mapping[str, str] | None = None) -> list[AsyncRun]:
        """The runs, newest first: all, or those of an evaluation or with all of these labels."""
        request = run_service_pb2.ListRunsRequest(
            parent=self._connection.parent, page_size=1000, eval=eval, labels=labels
        )
        pages = self._connection.pages(lambda stubs: stubs.runs.ListRuns, request)
        return [AsyncRun(self._connection, found) async for page in pages for found in page.runs]


class AsyncRun:
    """A run."""

    def __init__(self, connection: Connection, found: run_pb2.Run) -> None:
        self._connection = connection
        self.info = found
        """The run as the last call found it."""

    @property
    def name(self) -> str:
        """`projects/…/runs/…`."""
        return self.info.name

    @property
    def state(self) -> str:
        """`pending`, `running`, `waiting`, `scoring`, `succeeded`, `failed` or `cancelled`, as last found."""
        return run_pb2.RunState.Name(self.info.state).removeprefix("RUN_STATE_").lower()

    @property
    def ended(self) -> bool:
        """Whether it has ended, as the last call found it."""
        return self.info.state in _ENDED

    def __repr__(self) -> str:
        return f"<run {self.name} {self.state}>"

    async def refresh(self, *, full: bool = False) -> AsyncRun:
        """Asks for its state; with `full` also for conversation, output and store."""
        view = run_service_pb2.RUN_VIEW_FULL if full else run_service_pb2.RUN_VIEW_BASIC
        request = run_service_pb2.GetRunRequest(name=self.name, view=view)
        self.info = await self._connection.call(lambda stubs: stubs.runs.GetRun, request)
        return self

    async def wait(self, timeout: float | None = None) -> AsyncRun:
        """Waits until it has ended, with or without success: `state` says which.

        After `timeout` seconds it raises DeadlineExceeded; the run continues.
        """
        return await self._connection.within(timeout, self._wait())

    async def _wait(self) -> AsyncRun:
        request = run_service_pb2.WaitRunRequest(
            name=self.name, timeout=Duration(seconds=60), view=run_service_pb2.RUN_VIEW_FULL
        )
        while True:
            self.info = await self._connection.call(lambda stubs: stubs.runs.WaitRun, request)
            if self.ended:
                return self

    async def output(self) -> str:
        """The text of its output, once it has one."""
        return (await self.refresh(full=True)).info.output.completion

    async def messages(self) -> list[ChatMessage]:
        """Its conversation."""
        return list((await self.refresh(full=True)).info.messages)

    async def watch(
        self, cursor: str = "", *, content: bool = False, from_head: bool = False
    ) -> AsyncIterator[run_service_pb2.WatchRunResponse]:
        """Yields events, and notes of open effects, until the run has ended.

        It continues where it was after a lost connection, and after a restart of the server. To continue in another
        process, pass the `cursor` of the last event.

        Args:
            cursor: Continue after this position; empty: from the beginning.
            content: Include content: prompts, answers, files.
            from_head: Without a cursor, only events from now on.
        """
        request = run_service_pb2.WatchRunRequest(name=self.name, cursor=cursor, content=content, from_head=from_head)

        def reopen(stubs: Stubs) -> Stream[run_service_pb2.WatchRunResponse]:
            return stubs.runs.WatchRun(request, metadata=self._connection.metadata())

        async for update in self._connection.follow(reopen):
            request.cursor = update.cursor or request.cursor
            if update.WhichOneof("update"):
                yield update

    async def post(self, text: str) -> None:
        """Puts a message before the agent's next turn."""
        request = run_service_pb2.PostMessageRequest(name=self.name, text=text, request_id=new_key())
        await self._connection.call(lambda stubs: stubs.runs.PostMessage, request)

    async def interrupt(self, text: str = "", *, reason: str = "") -> None:
        """Ends the agent's turn: its work in flight is stopped, and its answer is discarded.

        The agent continues with the text as a message of the user; without one it waits for `post`.
        """
        request = run_service_pb2.InterruptRunRequest(name=self.name, text=text, reason=reason, request_id=new_key())
        await self._connection.call(lambda stubs: stubs.runs.InterruptRun, request)

    async def cancel_call(self, call_id: str, *, reason: str = "") -> None:
        """Stops a tool call that runs, by the id that events show. The model sees a timeout, and the run continues."""
        request = run_service_pb2.CancelCallRequest(
            name=self.name, call_id=call_id, reason=reason, request_id=new_key()
        )
        await self._connection.call(lambda stubs: stubs.runs.CancelCall, request)

    async def hold(self, reason: str = "") -> AsyncRun:
        """Lets the current step end, and starts no further one until `resume`."""
        request = run_service_pb2.HoldRunRequest(name=self.name, reason=reason, request_id=new_key())
        self.info = await self._connection.call(lambda stubs: stubs.runs.HoldRun, request)
        return self

    async def resume(self) -> AsyncRun:
        """Continues it after `hold`, or when it waits for a decision: the lost effect is then repeated."""
        request = run_service_pb2.ResumeRunRequest(name=self.name, request_id=new_key())
        self.info = await self._connection.call(lambda stubs: stubs.runs.ResumeRun, request)
        return self

    async def set_limits(self, limits: Mapping[str, float | None]) -> AsyncRun:
        """Changes limits while it runs, such as `{"turns": 50, "time": 600, "cost": None}`; None lifts one.

        Limits are `messages`, `tokens`, `turns`, `cost` in dollars, `time` and `working_time` in seconds. Others stay;
        `info.limits` has those in force.
        """
        given = {
            limit: f"{value:.9f}s" if limit in ("time", "working_time") else value
            for limit, value in limits.items()
            if value is not None
        }
        made = plain.parse(given, run_pb2.RunLimits())
        request = run_service_pb2.RetuneLimitsRequest(
            name=self.name, limits=made, update_mask=FieldMask(paths=list(limits)), request_id=new_key()
        )
        self.info = await self._connection.call(lambda stubs: stubs.runs.RetuneLimits, request)
        return self

    async def cancel(self, reason: str = "") -> AsyncRun:
        """Ends it: no further effect of its agent starts."""
        request = run_service_pb2.CancelRunRequest(name=self.name, reason=reason, request_id=new_key())
        self.info = await self._connection.call(lambda stubs: stubs.runs.CancelRun, request)
        return self

    async def delete(self) -> None:
        """Deletes it, with its journal. It must have ended."""
        await self._connection.call(
            lambda stubs: stubs.runs.DeleteRun, run_service_pb2.DeleteRunRequest(name=self.name)
        )
