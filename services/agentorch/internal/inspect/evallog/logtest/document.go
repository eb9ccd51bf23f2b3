package logtest

import (
	"github.com/evalfleet/evalfleet/pkg/json/orderedjson"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/evallog"
)

// The shapes of the documents of a log, as Inspect 0.3.285 accepts them.
var (
	failureShape = object(members{"message!": text, "traceback!": text, "traceback_ansi!": text})
	usageShape   = mapOf(object(members{
		"input_tokens": integer, "output_tokens": integer, "total_tokens": integer, "total_cost": nullable(number),
		"input_tokens_cache_write": nullable(integer), "input_tokens_cache_read": nullable(integer), "reasoning_tokens": nullable(integer),
	}))
	scoreShape = object(members{
		"value!": is("a value", func(value any) bool { return value != nil }),
		"answer": nullable(text), "explanation": nullable(text), "reason": nullable(text), "metadata": nullable(values),
	})
	sandboxShape = object(members{"type!": text})

	headerShape = object(members{
		"version": integer,
		"status":  oneOf(string(evallog.Started), string(evallog.Success), string(evallog.Cancelled), string(evallog.Failed)),
		"eval!":   evalShape,
		"plan":    planShape,
		"results": nullable(resultsShape),
		"stats": object(members{
			"started_at": noMoment, "completed_at": noMoment, "model_usage": usageShape, "role_usage": usageShape,
		}),
		"error": nullable(failureShape), "invalidated": boolean, "tags": listOf(text), "metadata": values,
		"log_updates": nullable(listOf(object(members{
			"edits":       listOf(object(members{"type!": oneOf("tags", "metadata"), "tags_add": listOf(text), "tags_remove": listOf(text)})),
			"provenance!": object(members{"author!": text, "reason": nullable(text), "metadata": values}),
		}))),
		"reductions": nullable(listOf(object(members{
			"scorer!": text, "reducer": nullable(text), "samples!": listOf(scoreShape),
		}))),
	})
	evalShape = object(members{
		"created!": moment, "task!": text, "model!": text,
		"dataset!": object(members{
			"name": nullable(text), "location": nullable(text), "samples": nullable(integer),
			"sample_ids": nullable(listOf(identity)), "shuffled": nullable(boolean),
		}),
		"config!":     configShape,
		"eval_set_id": nullable(text), "eval_id": text, "run_id": text, "task_id": text, "task_version": identity,
		"task_file": nullable(text), "task_display_name": nullable(text), "task_registry_name": nullable(text),
		"task_attribs": values, "task_args": values, "task_args_passed": values,
		"solver": nullable(text), "solver_args": nullable(values), "solver_args_passed": nullable(values),
		"tags": nullable(listOf(text)), "sandbox": nullable(sandboxShape), "packages": mapOf(text), "metadata": nullable(values),
		"model_generate_config": values, "model_base_url": nullable(text), "model_args": values, "model_roles": nullable(values),
		"revision": nullable(object(members{"type!": oneOf("git"), "origin!": text, "commit!": text, "dirty": nullable(boolean)})),
		"scorers":  nullable(listOf(object(members{"name!": text, "options": nullable(values), "metadata": nullable(values)}))),
		"metrics":  nullable(either(listOf(values), values)),
	})
	configShape = object(members{
		"limit": nullable(either(integer, listOf(integer))), "sample_id": nullable(either(identity, listOf(identity))), "sample_shuffle": nullable(either(boolean, integer)),
		"epochs": nullable(integer), "epochs_reducer": nullable(listOf(text)), "approval": nullable(values),
		"fail_on_error": nullable(either(boolean, number)), "continue_on_fail": nullable(boolean), "retry_on_error": nullable(integer), "score_on_error": nullable(boolean),
		"message_limit": nullable(integer), "token_limit": nullable(integer), "turn_limit": nullable(integer), "time_limit": nullable(integer),
		"working_limit": nullable(integer), "cost_limit": nullable(number), "max_samples": nullable(integer), "max_tasks": nullable(integer),
		"max_subprocesses": nullable(integer), "max_sandboxes": nullable(integer), "sandbox_cleanup": nullable(boolean),
		"log_samples": nullable(boolean), "log_realtime": nullable(boolean), "log_images": nullable(boolean),
		"log_buffer": nullable(integer), "log_shared": nullable(integer), "score_display": nullable(boolean),
	})
	stepShape = object(members{"solver!": text, "params": values, "params_passed": values})
	planShape = object(members{"name": text, "steps": listOf(stepShape), "finish": nullable(stepShape), "config": values})

	resultsShape = object(members{
		"total_samples": integer, "completed_samples": integer, "metadata": nullable(values),
		"scores": listOf(object(members{
			"name!": text, "scorer!": text, "reducer": nullable(text), "scored_samples": nullable(integer), "unscored_samples": nullable(integer),
			"params": values, "metadata": nullable(values),
			"metrics": mapOf(object(members{
				"name!": text, "value!": number, "group": nullable(text), "params": values, "metadata": nullable(values),
			})),
		})),
	})

	partShape = members{
		"id!": identity, "epoch!": integer, "input!": either(text, listOf(messageShape)), "target!": either(text, listOf(text)),
		"choices": nullable(listOf(text)), "metadata": values, "scores": nullable(mapOf(scoreShape)), "model_usage": usageShape, "role_usage": usageShape,
		"model_fallbacks": nullable(listOf(object(members{"model!": text, "fallback_model!": text, "count": integer, "metadata": nullable(values)}))),
		"started_at":      nullable(moment), "completed_at": nullable(moment), "total_time": nullable(number), "working_time": nullable(number),
		"uuid": nullable(text), "turn_count": nullable(integer),
	}
	summaryShape = object(with(partShape, members{
		"error": nullable(text), "limit": nullable(text), "retries": nullable(integer), "completed": boolean, "message_count": nullable(integer),
	}))
	sampleShape = object(with(partShape, members{
		"sandbox": nullable(sandboxShape), "files": nullable(listOf(text)), "setup": nullable(text),
		"messages": listOf(messageShape), "output": outputShape,
		"store": values, "events": listOf(eventShape), "attachments": mapOf(text),
		"error": nullable(failureShape), "error_retries": nullable(listOf(failureShape)),
		"limit":       nullable(object(members{"type!": limitTypes, "limit!": number})),
		"events_data": nullable(object(members{"messages!": listOf(messageShape), "calls!": listOf(anything)})),
	}))
	messageShape = object(members{
		"role!": oneOf("system", "user", "assistant", "tool"), "id": nullable(text), "content!": either(text, listOf(contentShape)),
		"tool_calls": nullable(listOf(object(members{"id!": text, "function!": text, "arguments!": values}))),
	})
	contentShape = object(members{"type!": oneOf("text", "reasoning", "image", "audio", "video", "data", "tool_use", "document")})
	outputShape  = object(members{
		"model": text, "usage": nullable(values), "choices": listOf(object(members{"message!": messageShape, "stop_reason": text})),
	})
	limitTypes = oneOf("context", "time", "working", "message", "token", "turn", "cost", "operator", "custom")
)

func with(shared, own members) members {
	all := members{}
	for _, m := range []members{shared, own} {
		for name, s := range m {
			all[name] = s
		}
	}
	return all
}

// eventMembers are the required members of each kind of event.
var eventMembers = map[string]members{
	"sample_init":  {"sample!": values},
	"sample_limit": {"type!": limitTypes, "message!": text},
	"sandbox":      {"action!": oneOf("exec", "read_file", "write_file")},
	"state":        {"changes!": listOf(values)},
	"store":        {"changes!": listOf(values)},
	"model": {
		"model!": text, "input!": listOf(messageShape), "tools!": listOf(values), "tool_choice!": anything, "config!": values, "output!": outputShape,
	},
	"tool":       {"id!": text, "function!": text, "arguments!": values},
	"anchor":     {"anchor_id!": text},
	"approval":   {"message!": text, "call!": values, "approver!": text, "decision!": oneOf("approve", "modify", "reject", "escalate", "terminate")},
	"branch":     {},
	"compaction": {},
	"checkpoint": {"checkpoint_id!": integer, "trigger!": text, "turn!": integer, "created_at!": moment, "duration_ms!": integer, "size_bytes!": integer, "host!": values},
	"input":      {"input!": text, "input_ansi!": text},
	"interrupt":  {"source!": oneOf("user_cancel", "limit", "system"), "interrupted!": oneOf("generate", "tool_call", "between_turns")},
	"review":     {"message!": text, "call!": values, "reviewer!": text, "decision!": oneOf("continue", "terminate", "escalate")},
	"sentinel":   {"factory!": text, "path!": text, "step_id!": text, "conversation!": text, "stage!": text, "kind!": text, "status!": text},
	"score":      {"score!": scoreShape},
	"score_edit": {"score_name!": text, "edit!": values},
	"error":      {"error!": failureShape},
	"logger":     {"message!": values},
	"info":       {"data!": anything},
	"span_begin": {"id!": text, "name!": text},
	"span_end":   {"id!": text},
	"step":       {"action!": oneOf("begin", "end"), "name!": text},
	"subtask":    {"name!": text, "input!": values},
}

// eventShape takes the events of the known kinds.
func eventShape(value any) string {
	event, ok := value.(*orderedjson.Object)
	if !ok {
		return "must be an object"
	}
	kind, _ := event.Get("event")
	name, _ := kind.(string)
	named, known := eventMembers[name]
	if !known {
		return "is an event of an unknown kind"
	}
	return object(named)(value)
}
