// Package transcript converts a run's journal to the events of Inspect's logs: each intent becomes one event with its
// outcome, at the place of the intent, and steps, tool calls and scorers get their spans.
//
// It is the only package that knows both the platform's kinds of events and those of the log format:
//
//	journal                                transcript
//	RunCreated … the first step            span_begin (type init), sample_init, span_end
//	the first step … the last              span_begin … span_end (type solvers)
//	StepBegan … StepEnded                  span_begin … state, span_end (type solver; an agent has a span of type agent within)
//	ModelIntent, ModelOutcome              model for each attempt that failed before, and model
//	ToolIntent, ToolOutcome                span_begin (type tool), tool, span_end; store; sandbox
//	StoreChanged                           store
//	ExecIntent, ExecOutcome, SandboxActed  sandbox
//	ScoreIntent, ScoreOutcome              span_begin (type scorer), score, span_end
//	LimitHit                               sample_limit; interrupt
//	Info, LogLine, ErrorRaised             info, logger, error
//	Compacted, Branched, Anchored, …       compaction, branch, anchor, …
//
// Messages are not events of a transcript: they appear in the inputs of model calls.
package transcript

import (
	"encoding/json"
	"time"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
)

// Event is an event of a transcript. Its fields are those of the log format; absent fields are omitted.
type Event struct {
	Event        string    `json:"event"`
	UUID         string    `json:"uuid,omitempty"`
	SpanID       string    `json:"span_id,omitempty"`
	Timestamp    time.Time `json:"timestamp"`
	WorkingStart float64   `json:"working_start"`
	// Pending is set while the effect is open.
	Pending bool `json:"pending,omitempty"`

	// span_begin, span_end
	ID       string `json:"id,omitempty"` // also of a tool call
	ParentID string `json:"parent_id,omitempty"`
	Name     string `json:"name,omitempty"`
	// Type is that of a span, a limit, a compaction, and `function` for a tool call.
	Type string `json:"type,omitempty"`

	// model
	Model string `json:"model,omitempty"`
	Role  string `json:"role,omitempty"`
	// Messages are the model's input. Model calls of a run share them.
	Messages   []*modelv1.ChatMessage `json:"-"`
	Tools      json.RawMessage        `json:"tools,omitempty"`
	ToolChoice json.RawMessage        `json:"tool_choice,omitempty"`
	Config     json.RawMessage        `json:"config,omitempty"`
	Output     json.RawMessage        `json:"output,omitempty"` // also the output of a sandbox
	Retries    int                    `json:"retries,omitempty"`
	Cache      string                 `json:"cache,omitempty"`
	Call       json.RawMessage        `json:"call,omitempty"`
	// Traceback names the place where the error of a model call arose.
	Traceback string `json:"traceback,omitempty"`

	// tool
	Function    string          `json:"function,omitempty"`
	Arguments   json.RawMessage `json:"arguments,omitempty"`
	Result      json.RawMessage `json:"result,omitempty"`
	Truncated   []int64         `json:"truncated,omitempty"`
	Agent       string          `json:"agent,omitempty"`
	AgentSpanID string          `json:"agent_span_id,omitempty"`
	Failed      bool            `json:"failed,omitempty"`
	MessageID   string          `json:"message_id,omitempty"`
	View        json.RawMessage `json:"view,omitempty"`

	// Error is the text of a model's error, or the object of a tool's or a run's.
	Error       json.RawMessage `json:"error,omitempty"`
	Completed   *time.Time      `json:"completed,omitempty"`
	WorkingTime *float64        `json:"working_time,omitempty"`

	// sandbox
	Action  string          `json:"action,omitempty"`
	Cmd     string          `json:"cmd,omitempty"`
	File    string          `json:"file,omitempty"`
	Options json.RawMessage `json:"options,omitempty"`
	// Input is the standard input of a command, the input of a subtask, or a question.
	Input json.RawMessage `json:"input,omitempty"`

	// score
	Score        *score.Score    `json:"score,omitempty"`
	Target       json.RawMessage `json:"target,omitempty"`
	Scorer       string          `json:"scorer,omitempty"`
	ScorerArgs   json.RawMessage `json:"scorer_args,omitempty"`
	Intermediate bool            `json:"intermediate,omitempty"`
	// ModelUsage and RoleUsage are the run's usage at the time of the score.
	ModelUsage, RoleUsage map[string]*modelv1.ModelUsage `json:"-"`

	// sample_init, store, state
	Sample  json.RawMessage `json:"sample,omitempty"`
	State   json.RawMessage `json:"state,omitempty"`
	Changes []Change        `json:"changes,omitempty"`

	// sample_limit, info, logger, compaction, branch, anchor, interrupt, approval
	Message      json.RawMessage `json:"message,omitempty"`
	Limit        *float64        `json:"limit,omitempty"`
	Source       string          `json:"source,omitempty"`
	Data         json.RawMessage `json:"data,omitempty"`
	TokensBefore int64           `json:"tokens_before,omitempty"`
	TokensAfter  int64           `json:"tokens_after,omitempty"`
	Metadata     json.RawMessage `json:"metadata,omitempty"`
	FromAnchor   string          `json:"from_anchor,omitempty"`
	AnchorID     string          `json:"anchor_id,omitempty"`
	Interrupted  string          `json:"interrupted,omitempty"`
	CallID       string          `json:"interrupted_tool_call_id,omitempty"`
	Approver     string          `json:"approver,omitempty"`
	Decision     string          `json:"decision,omitempty"`
	Explanation  string          `json:"explanation,omitempty"`
	Modified     json.RawMessage `json:"modified,omitempty"`
}

// Change is one change of a store or of the conversation, as a JSON patch.
type Change struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}
