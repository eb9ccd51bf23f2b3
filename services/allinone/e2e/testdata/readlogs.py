"""Reads every log of a folder in every way that inspect_ai has, and prints what it found as JSON: a list with an object a log, by name."""

import json
import os
import sys
import tempfile

from inspect_ai.log import (
    list_eval_logs,
    read_eval_log,
    read_eval_log_sample,
    read_eval_log_sample_summaries,
    read_eval_log_samples,
    write_eval_log,
)


def plain(model, **options):
    """A model as JSON values; NaN is the text NaN, which JSON can hold."""
    return json.loads(model.model_dump_json(exclude_none=True, **options), parse_constant=str)


def message(m):
    return {
        "id": m.id,
        "role": m.role,
        "text": m.text,
        "calls": [[c.function, c.arguments] for c in getattr(m, "tool_calls", None) or []],
        "error": m.error.type if getattr(m, "error", None) else None,
    }


def event(e):
    found = {"event": e.event}
    if e.event == "span_begin":
        found["span"] = [e.type, e.name]
    if e.event == "model":
        found["input"] = [m.id for m in e.input]
        found["usage"] = plain(e.output.usage) if e.output.usage else None
        found["error"] = e.error
        found["traceback"] = e.traceback
        found["call"] = plain(e.call) if e.call else None
        found["config"] = plain(e.config)
    if e.event == "tool":
        found["call"] = [e.id, e.function, e.arguments]
        found["result"] = e.result
        found["view"] = plain(e.view) if e.view else None
        found["message"] = e.message_id
        found["error"] = plain_error(e.error)
    if e.event == "sandbox":
        found["action"] = [e.action, e.cmd, e.result]
    if e.event == "score":
        found["score"] = [e.scorer, plain(e.score)["value"]]
        found["usage"] = {name: plain(u) for name, u in (e.model_usage or {}).items()}
    if e.event == "sample_limit":
        found["limit"] = [e.type, e.limit]
    if e.event == "error":
        found["error"] = e.error.message
    return found


def plain_error(error):
    return [error.type, error.message] if error else None


def sample(s):
    open_spans = []
    for e in s.events:
        if e.event == "span_begin":
            assert e.parent_id is None or e.parent_id in open_spans, "a span stands in an open one"
            open_spans.append(e.id)
        if e.event == "span_end":
            open_spans.remove(e.id)
    uuids = [e.uuid for e in s.events]
    return {
        "id": s.id,
        "epoch": s.epoch,
        "uuid": s.uuid,
        "input": s.input if isinstance(s.input, str) else [message(m) for m in s.input],
        "target": s.target,
        "metadata": s.metadata,
        "messages": [message(m) for m in s.messages],
        "completion": s.output.completion,
        "scores": {name: plain(score) for name, score in (s.scores or {}).items()},
        "events": [event(e) for e in s.events],
        "open_spans": open_spans,
        "pending": [e.event for e in s.events if e.pending],
        "events_are_distinct": len(set(uuids)) == len(uuids),
        "usage": {name: plain(u) for name, u in s.model_usage.items()},
        "error": s.error.message if s.error else None,
        "traceback": s.error.traceback if s.error else None,
        "retries": [r.message for r in s.error_retries or []],
        "limit": [s.limit.type, s.limit.limit] if s.limit else None,
        "turns": s.turn_count,
        "sandbox": s.sandbox.type if s.sandbox else None,
        "files": s.files,
        "store": s.store,
        "started": s.started_at,
        "completed": s.completed_at,
        "total_time": s.total_time,
    }


def read(path):
    log = read_eval_log(path, resolve_attachments="full")
    as_it_is = read_eval_log(path)
    header = read_eval_log(path, header_only=True)
    assert header.samples is None

    def without(l):
        return json.loads(l.model_dump_json(exclude={"samples", "reductions", "location", "etag"}), parse_constant=str)

    ids = [(s.id, s.epoch) for s in log.samples]
    for id, epoch in ids:
        assert read_eval_log_sample(path, id, epoch).uuid, "each sample is found by its id"
    summaries = read_eval_log_sample_summaries(path)

    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, os.path.basename(path))
        write_eval_log(as_it_is, copy)
        again = read_eval_log(copy, resolve_attachments="full")
        round_trip = again.model_dump_json(exclude={"location", "etag"}) == log.model_dump_json(exclude={"location", "etag"})

    return {
        "file": os.path.basename(path),
        "header": plain(header),
        "header_is_that_of_the_whole": without(header) == without(log),
        "reductions": [plain(r) for r in log.reductions or []],
        "samples": [sample(s) for s in log.samples],
        "summaries": [
            {"id": s.id, "epoch": s.epoch, "completed": s.completed, "error": s.error, "limit": s.limit, "messages": s.message_count, "uuid": s.uuid}
            for s in summaries
        ],
        "streamed": [[s.id, s.epoch] for s in read_eval_log_samples(path, all_samples_required=False)],
        "attachments": sum(len(s.attachments) for s in as_it_is.samples),
        "unresolved": log.model_dump_json().count("attachment://"),
        "round_trip": round_trip,
    }


def main():
    folder = sys.argv[1]
    listed = sorted((info.name.removeprefix("file://"), info.task, info.task_id) for info in list_eval_logs(folder))
    found = []
    for name, task, task_id in listed:
        found.append({**read(name), "task": task, "task_id": task_id})
    json.dump(found, sys.stdout)


main()
