// Package react is the agent that thinks and acts in turns: it calls the model, runs the requested tools, and continues
// until the model submits an answer.
//
//	          ┌────────────────────────────── continue ◀───────────────────┐
//	          ▼                                                              │ no
//	start ─▶ ask ─▶ answer ─┬─ context full ─▶ compact, trim, or stop        │
//	                        ├─ third refusal in a row ─▶ stop                │
//	                        ├─ tool calls ─▶ run them ─▶ submitted? ─────────┤
//	                        └─ no calls ─▶ ask to continue (without submit: stop)
//
//	The worker that on_continue names is called after each turn that does not end the agent,
//	and decides whether and how it continues.
//
//	                                           submitted ─▶ last attempt? ─ yes ─▶ done
//	                                                           │ no
//	                                                           ▼
//	                                                score ─▶ right? ─ yes ─▶ done, no ─▶ say so and continue
//
// With a compaction, what the model is sent is shortened before a turn where it is too long ([compaction.Handler]).
//
// If a submission must not stay in the messages, the submit calls and their results are removed at the end.
package react

import (
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/compaction"
)

// Definition describes the agent.
func Definition() agent.Definition {
	return agent.Definition{
		Name:        "react",
		Description: "Thinks and acts in turns with tools until it submits an answer.",
		Parameters:  schema,
		Resolve:     resolve,
		Workers:     consulted,
		Windows:     windows,
		New:         func(step *agentv1.AgentRef) (agent.Machine, error) { return newMachine(step) },
	}
}

const schema = `{"type": "object", "properties": {
	"prompt": {"description": "The system message: text is put in front of the default prompts, an object sets its parts, null leaves it out.", "anyOf": [
		{"type": ["string", "null"]},
		{"type": "object", "properties": {
			"instructions": {"type": ["string", "null"]},
			"handoff_prompt": {"type": ["string", "null"]},
			"assistant_prompt": {"type": ["string", "null"], "description": "{submit} is the name of the submit tool."},
			"submit_prompt": {"type": ["string", "null"], "description": "{submit} is the name of the submit tool."}
		}, "additionalProperties": false}]},
	"model": {"type": "string", "description": "Another model than the run's, provider/name, or one of its roles."},
	"attempts": {"description": "Submissions that are allowed; between them the run is scored.", "anyOf": [
		{"type": "integer", "minimum": 1},
		{"type": "object", "properties": {
			"attempts": {"type": "integer", "minimum": 1},
			"incorrect_message": {"type": "string", "description": "What the model reads after a wrong submission."},
			"score_value": {"type": "object", "additionalProperties": {"type": "number"}, "description": "Numbers for scores by their text; others are 0. 1 is right."}
		}, "additionalProperties": false}]},
	"submit": {"description": "The submit tool; false for an agent that ends with an answer without calls.", "anyOf": [
		{"type": "boolean"},
		{"type": "object", "properties": {
			"name": {"type": "string", "minLength": 1},
			"description": {"type": "string"},
			"tool": {"type": "string", "description": "A registered tool in place of the default one; its result is the answer."},
			"answer_only": {"type": "boolean", "description": "The completion is the answer alone."},
			"answer_delimiter": {"type": "string", "description": "Between completion and answer; default an empty line."},
			"keep_in_messages": {"type": "boolean", "description": "Leave submit calls and results in the conversation."}
		}, "additionalProperties": false}]},
	"on_continue": {"description": "What the model reads after an answer without calls; {submit} is the name of the submit tool. An object names a worker that says after each turn how to go on.", "anyOf": [
		{"type": "string"},
		{"type": "object", "properties": {"worker": {"type": "string", "minLength": 1}}, "required": ["worker"], "additionalProperties": false}]},
	"retry_refusals": {"type": "integer", "minimum": 0, "description": "How often a refusal is asked again."},
	"truncation": {"description": "When the context is full: auto trims the history, disabled stops, a filter is applied.", "anyOf": [
		{"enum": ["auto", "disabled", "content_only", "remove_tools", "last_message"]},
		{"type": "array", "items": {"enum": ["content_only", "remove_tools", "last_message"]}, "minItems": 1}]},
	"compaction": {"description": "Shortens what the model is sent, before the context is full and when it is.", "anyOf": [` + compaction.Schema + `, {"type": "null"}]}
}, "additionalProperties": false}`
