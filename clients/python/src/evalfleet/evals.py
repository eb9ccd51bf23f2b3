"""Evaluations."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask

from evalfleet import files
from evalfleet.agent.v1 import eval_pb2, eval_service_pb2, run_pb2, score_pb2
from evalfleet.blobs import AsyncBlobs
from evalfleet.connection import Connection, Stream, Stubs
from evalfleet.exceptions import InvalidRequest
from evalfleet.keys import new_key

Row = dict[str, Any]
"""A row of a table, ready for `pandas.DataFrame`."""

_MISSING_FILE = re.compile(r'files\[(".*")\]')
_ENDED = (eval_pb2.EVAL_STATE_SUCCEEDED, eval_pb2.EVAL_STATE_FAILED, eval_pb2.EVAL_STATE_CANCELLED)


class AsyncEvals:
    """The evaluations of a project."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create(
        self,
        task: str | os.PathLike[str] | Mapping[str, Any] | eval_pb2.EvalSpec,
        *,
        model: str | Sequence[str] = (),
        model_args: Mapping[str, Any] | None = None,
        limit: int | tuple[int, int] | None = None,
        sample_ids: Sequence[str] = (),
        epochs: int | None = None,
        max_samples: int | None = None,
        driver: str = "",
        sets: Mapping[str, Any] | None = None,
        tags: Sequence[str] = (),
        files: Mapping[str, str | bytes | os.PathLike[str]] | None = None,
        check: bool = False,
        key: str | None = None,
    ) -> AsyncEval:
        """Creates an evaluation, which then runs independently of this program.

        Args:
            task: The path of a task file, its content as a dict, or a specification of the protocol, to which the
                other arguments but `check` and `key` do not apply. Files that the task names, such as its dataset,
                are uploaded; their paths start at the task file, or for a dict at the working directory.
            model: The model or models, in place of the task's.
            model_args: Arguments of all models, in place of the task's.
            limit: Only the first so many samples, or those of a range from 0: (first, after the last).
            sample_ids: Only samples with these ids; `*` and `?` match.
            epochs: How often each sample runs.
            max_samples: Samples that run at once.
            driver: Driver of all sandboxes.
            sets: Keys of the task to set, such as `{"limits.time": "2m"}`.
            tags: Tags beside those of the task.
            files: Contents of files that the task names, in place of the files of this machine: bytes, or a path.
            check: Only check the task: everything is resolved, nothing is created and the result has no name.
            key: A key of your own: creating again with it returns the same evaluation.
        """
        if isinstance(task, eval_pb2.EvalSpec):
            made = await self._connection.call(
                lambda stubs: stubs.evals.CreateEval,
                eval_service_pb2.CreateEvalRequest(
                    parent=self._connection.parent, spec=task, validate_only=check, request_id=key or new_key()
                ),
            )
            return AsyncEval(self._connection, made)
        if isinstance(task, Mapping):
            folder, name, text = Path.cwd(), "", json.dumps(task)
        else:
            path = Path(task)
            folder, name, text = path.parent, path.name, path.read_text()
        request = eval_service_pb2.CreateEvalFromTaskRequest(
            parent=self._connection.parent,
            task=text,
            file_name=name,
            models=[model] if isinstance(model, str) else model,
            model_args={name: json.dumps(value) for name, value in (model_args or {}).items()},
            limit=None
            if limit is None
            else eval_pb2.SampleRange(start=0, end=limit)
            if isinstance(limit, int)
            else eval_pb2.SampleRange(start=limit[0], end=limit[1]),
            sample_ids=sample_ids,
            epochs=epochs,
            max_samples=max_samples,
            driver=driver,
            sets=[f"{name}={json.dumps(value)}" for name, value in (sets or {}).items()],
            tags=tags,
            validate_only=check,
            request_id=key or new_key(),
        )
        blobs = AsyncBlobs(self._connection)
        for name, body in (files or {}).items():
            request.files[name] = (await blobs.put(Path(body) if isinstance(body, str) else body)).hash
        while True:
            try:
                made = await self._connection.call(lambda stubs: stubs.evals.CreateEvalFromTask, request)
            except InvalidRequest as failure:
                missing = _missing_file(failure, request)
                if missing is None or not (folder / missing).is_file():
                    raise
                request.files[missing] = (await blobs.put(folder / missing)).hash
            else:
                return AsyncEval(self._connection, made)

    async def get(self, name: str) -> AsyncEval:
        """An evaluation by its name, `projects/…/evals/…`, or the last part of it."""
        request = eval_service_pb2.GetEvalRequest(name=self._connection.name("evals", name))
        return AsyncEval(self._connection, await self._connection.call(lambda stubs: stubs.evals.GetEval, request))

    async def list(self) -> list[AsyncEval]:
        """All evaluations, newest first."""
        request = eval_service_pb2.ListEvalsRequest(parent=self._connection.parent, page_size=1000)
        pages = self._connection.pages(lambda stubs: stubs.evals.ListEvals, request)
        return [AsyncEval(self._connection, found) async for page in pages for found in page.evals]

    async def scorers(self) -> eval_service_pb2.ListScorersResponse:
        """The scorers that tasks may name, with the schemas of their parameters, and the metrics and reducers."""
        request = eval_service_pb2.ListScorersRequest(parent=self._connection.parent)
        return await self._connection.call(lambda stubs: stubs.evals.ListScorers, request)


class AsyncEval:
    """An evaluation."""

    def __init__(self, connection: Connection, found: eval_pb2.Eval) -> None:
        self._connection = connection
        self.info = found
        """The evaluation as the last call found it: its progress, results, usage and warnings."""

    @property
    def name(self) -> str:
        """`projects/…/evals/…`; empty after a mere check."""
        return self.info.name

    @property
    def state(self) -> str:
        """`pending`, `running`, `succeeded`, `failed` or `cancelled`, as the last call found it."""
        return eval_pb2.EvalState.Name(self.info.state).removeprefix("EVAL_STATE_").lower()

    @property
    def ended(self) -> bool:
        """Whether it has ended, as the last call found it."""
        return self.info.state in _ENDED

    def __repr__(self) -> str:
        return f"<eval {self.name} {self.state}>"

    async def refresh(self) -> AsyncEval:
        """Asks for its state."""
        request = eval_service_pb2.GetEvalRequest(name=self.name)
        self.info = await self._connection.call(lambda stubs: stubs.evals.GetEval, request)
        return self

    async def wait(self, timeout: float | None = None) -> AsyncEval:
        """Waits until it has ended, with or without success: `state` says which.

        After `timeout` seconds it raises DeadlineExceeded; the evaluation continues.
        """
        return await self._connection.within(timeout, self._wait())

    async def _wait(self) -> AsyncEval:
        request = eval_service_pb2.WaitEvalRequest(name=self.name, timeout=Duration(seconds=60))
        while True:
            self.info = await self._connection.call(lambda stubs: stubs.evals.WaitEval, request)
            if self.ended:
                return self

    async def watch(
        self, cursor: str = "", *, progress: bool = True, content: bool = False, from_head: bool = False
    ) -> AsyncIterator[eval_service_pb2.WatchEvalResponse]:
        """Yields events, and the progress as it changes, until the evaluation has ended.

        It continues where it was after a lost connection, and after a restart of the server. To continue in another
        process, pass the `cursor` of the last event.

        Args:
            cursor: Continue after this position; empty: from the beginning.
            progress: Include the progress, at most four times a second.
            content: Include content: prompts, answers, files.
            from_head: Without a cursor, only events from now on.
        """
        request = eval_service_pb2.WatchEvalRequest(
            name=self.name, cursor=cursor, progress=progress, content=content, from_head=from_head
        )

        def reopen(stubs: Stubs) -> Stream[eval_service_pb2.WatchEvalResponse]:
            return stubs.evals.WatchEval(request, metadata=self._connection.metadata())

        async for update in self._connection.follow(reopen):
            request.cursor = update.cursor or request.cursor
            if update.HasField("progress"):
                self.info = update.progress
            if update.WhichOneof("update"):
                yield update

    async def samples(self, *, content: bool = False) -> list[eval_pb2.EvalSample]:
        """Its samples by epoch, then by their position in the dataset; with `content` also answers and explanations."""
        request = eval_service_pb2.ListSamplesRequest(parent=self.name, page_size=1000, content=content)
        pages = self._connection.pages(lambda stubs: stubs.evals.ListSamples, request)
        return [sample async for page in pages for sample in page.samples]

    async def results(self) -> list[Row]:
        """One row for each sample, epoch and model.

        Its columns are `sample`, `epoch`, `model`, `state`, `error`, `limit`, `tokens`, `cost`, `seconds`, `run`, and
        for each scorer `score_NAME`, `answer_NAME` and `explanation_NAME`.
        """
        return [_row(sample) for sample in await self.samples(content=True)]

    async def metrics(self) -> list[Row]:
        """One row for each metric, with `model`, `scorer`, `reducer`, `metric` and `value`."""
        await self.refresh()
        return [
            {
                "model": score.model or self.info.spec.models[0].model,
                "scorer": score.name,
                "reducer": score.reducer if score.HasField("reducer") else None,
                "metric": metric.key,
                "value": metric.value if metric.HasField("value") else None,
            }
            for score in self.info.results.scores
            for metric in score.metrics
        ]

    async def cancel(self, reason: str = "") -> AsyncEval:
        """Stops it: no further sample starts, running samples are cancelled, finished ones stay. It can be resumed."""
        request = eval_service_pb2.CancelEvalRequest(name=self.name, reason=reason, request_id=new_key())
        self.info = await self._connection.call(lambda stubs: stubs.evals.CancelEval, request)
        return self

    async def resume(self) -> AsyncEval:
        """Continues it after a cancel or a failure: finished samples stay, the others run again."""
        request = eval_service_pb2.ResumeEvalRequest(name=self.name, request_id=new_key())
        self.info = await self._connection.call(lambda stubs: stubs.evals.ResumeEval, request)
        return self

    async def update(
        self,
        *,
        max_samples: int | None = None,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AsyncEval:
        """Changes what may change while it runs. What is None stays.

        Args:
            max_samples: Samples that run at once.
            tags: Its tags.
            metadata: Its metadata.
        """
        changed: dict[str, Any] = {"max_samples": max_samples, "tags": tags}
        if metadata is not None:
            changed["metadata_json"] = json.dumps(dict(metadata))
        changed = {field: value for field, value in changed.items() if value is not None}
        request = eval_service_pb2.UpdateEvalRequest(
            eval=eval_pb2.Eval(name=self.name, spec=eval_pb2.EvalSpec(**changed)),
            update_mask=FieldMask(paths=[f"spec.{field}" for field in changed]),
        )
        self.info = await self._connection.call(lambda stubs: stubs.evals.UpdateEval, request)
        return self

    async def delete(self) -> None:
        """Deletes it, with the journals of all its runs. It must have ended."""
        request = eval_service_pb2.DeleteEvalRequest(name=self.name)
        await self._connection.call(lambda stubs: stubs.evals.DeleteEval, request)

    async def save_log(self, path: str | os.PathLike[str], *, model_index: int = 0) -> Path:
        """Writes its log for Inspect, with the finished samples, and returns where.

        A folder gets a file of the log's own name; a path that ends in `.json` gets JSON. An existing file is replaced
        when the log is complete. A log has one model, so an evaluation of several models needs `model_index`, from 1.
        """
        target, file_name = Path(path), ""
        form = eval_service_pb2.LOG_FORMAT_JSON if target.suffix == ".json" else eval_service_pb2.LOG_FORMAT_EVAL
        request = eval_service_pb2.ExportEvalRequest(name=self.name, format=form, model=model_index)
        with files.replacing(target) as log:

            def reopen(stubs: Stubs) -> Stream[eval_service_pb2.ExportEvalResponse]:
                log.restart()
                return stubs.evals.ExportEval(request, metadata=self._connection.metadata())

            async for piece in self._connection.follow(reopen):
                file_name = piece.file_name or file_name
                log.write(piece.chunk)
            if target.is_dir():
                log.target = target / Path(file_name).name
        return log.target


def _missing_file(failure: InvalidRequest, request: eval_service_pb2.CreateEvalFromTaskRequest) -> str | None:
    """The file that the server misses. It is one that the task names: a server has no say in what is uploaded."""
    for field in failure.fields:
        if found := _MISSING_FILE.fullmatch(field):
            name = str(json.loads(found[1]))
            texts = [request.task, *request.sets, *request.model_args.values()]
            if name not in request.files and any(name in text or json.dumps(name)[1:-1] in text for text in texts):
                return name
    return None


def _row(sample: eval_pb2.EvalSample) -> Row:
    row: Row = {
        "sample": int(sample.id) if sample.integer_id else sample.id,
        "epoch": sample.epoch,
        "model": sample.model,
        "state": run_pb2.RunState.Name(sample.state).removeprefix("RUN_STATE_").lower(),
        "error": sample.error.message if sample.HasField("error") else None,
        "limit": run_pb2.LimitType.Name(sample.limit.type).removeprefix("LIMIT_TYPE_").lower()
        if sample.HasField("limit")
        else None,
        "tokens": sample.usage.total_tokens,
        "cost": sample.usage.total_cost if sample.usage.HasField("total_cost") else None,
        "seconds": sample.total_time.ToTimedelta().total_seconds(),
        "run": sample.run,
    }
    for named in sample.scores:
        row[f"score_{named.name}"] = score_value(named.score.value)
        row[f"answer_{named.name}"] = named.score.answer if named.score.HasField("answer") else None
        row[f"explanation_{named.name}"] = named.score.explanation if named.score.HasField("explanation") else None
    return row


def score_value(value: score_pb2.ScoreValue) -> Any:
    """A score as a value of Python; None if the sample was not scored."""
    kind = value.WhichOneof("kind")
    if kind == "number":
        return int(value.number) if value.integer else value.number
    if kind == "list":
        return [score_value(item) for item in value.list.values]
    if kind == "map":
        return {entry.key: score_value(entry.value) for entry in value.map.entries}
    return None if kind in (None, "unscored") else getattr(value, kind)
