// Package compaction shortens the input of an agent's model when it comes near the model's context window. The
// conversation itself stays whole: a Compacted event replaces the input, and later messages are appended to that.
//
//	estimate ─ over the threshold, or the window is full ─▶ trim, edit ────────────────────────┐
//	   │                                                    summary: a call of a model ──────────┼─▶ Compacted
//	   │                                                    native:  a call of the provider's ───┘
//	   └─ over nine tenths of it ─▶ ask the model to save notes, once (InputAdded)
//
// A [Handler] is a part of an agent's machine: a fold of the run's events, which decides without I/O. The agent makes
// the calls and appends the events.
package compaction

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/tokens"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
)

const (
	// DefaultWindow is the context window that is assumed for a model if none is known, in tokens.
	DefaultWindow = 128_000
	// furtherPasses is how often a strategy is applied again to its own result, while that is over the threshold and
	// becomes smaller.
	furtherPasses = 3
)

// Counter estimates tokens. An implementation must give the same number each time, since the fold of a journal must.
type Counter interface {
	// Messages counts a conversation.
	Messages(messages []*modelv1.ChatMessage) int64
	// Tools counts the definitions of tools.
	Tools(tools []*toolv1.ToolInfo) int64
}

// Rough is a Counter of a token for four characters; see package tokens.
type Rough struct{}

// Messages implements [Counter].
func (Rough) Messages(messages []*modelv1.ChatMessage) int64 { return tokens.Rough(messages) }

// Tools implements [Counter].
func (Rough) Tools(tools []*toolv1.ToolInfo) int64 { return tokens.RoughTools(tools) }

// Handler decides when the conversation of an agent is compacted, and how. It is not safe for concurrent use.
type Handler struct {
	// Params are the pinned parameters, Model the agent's model as they name it.
	Params Params
	Model  string
	// Windows are the context windows of models by their names in the parameters, in tokens.
	Windows map[string]int64
	Counter Counter

	// prefix is how many messages the conversation had when the agent began, which is set at its first call. The system
	// messages and the input among them always stay. Zero means all messages of the conversation: the agent has not begun,
	// or messages were removed since.
	prefix int
	begun  bool
	// base is the size of the first messages of the input by the usage of the last answer; nil if no answer has reported
	// one, or if the input was changed since.
	base *baseline
	// sent is how many messages the open call of the agent was sent.
	sent int
	// asking and compacting are the intents of the agent's last call, and of its last call for a compaction.
	asking, compacting int64
	// ended are the results of the calls of the present compaction. They are about the input as it is, so that a change of
	// the input drops them.
	ended []result
	// warned is set once the model was asked to save notes, until the next compaction.
	warned bool
	// settled is set from a compaction or a warning until the model's next turn: a turn has at most one of them.
	settled bool
}

// baseline is how many tokens the first messages of the input and the tools are.
type baseline struct {
	messages int
	tokens   int64
}

// result is the result of a call for a compaction: the output with a summary, the provider's messages, or an error.
type result struct {
	output   *modelv1.ModelOutput
	messages []*modelv1.ChatMessage
	fault    *agentv1.RunError
}

// Apply folds an event of the agent.
func (h *Handler) Apply(e *agentv1.Event) {
	switch k := e.GetKind().(type) {
	case *agentv1.Event_ModelIntent:
		h.intent(e.GetSeq(), k.ModelIntent)
	case *agentv1.Event_ModelOutcome:
		h.outcome(k.ModelOutcome)
	case *agentv1.Event_Compacted:
		h.base, h.ended, h.warned, h.settled = nil, nil, false, true
	case *agentv1.Event_InputAdded:
		if k.InputAdded.GetReason() == memoryTool {
			h.warned, h.settled = true, true
		}
	case *agentv1.Event_HistoryChanged:
		h.ended = nil
		if c := k.HistoryChanged; c.GetReplaceAll() || len(c.GetRemovedIds()) > 0 {
			h.base, h.prefix = nil, 0
			h.warned = h.warned && !c.GetReplaceAll()
		}
	case *agentv1.Event_MessageAdded:
		h.ended = nil
		if k.MessageAdded.Index != nil {
			h.base = nil
		}
	case *agentv1.Event_Interrupted:
		h.ended = nil
	}
}

func (h *Handler) intent(seq int64, i *agentv1.ModelIntent) {
	switch i.GetPurpose() {
	case agent.PurposeAgent:
		h.asking, h.sent, h.settled, h.ended = seq, int(i.GetMessageCount()), false, nil
		if !h.begun {
			h.begun, h.prefix = true, h.sent
		}
	case agent.PurposeCompaction:
		h.compacting = seq
	}
}

func (h *Handler) outcome(o *agentv1.ModelOutcome) {
	failed := o.GetIntent() == h.compacting && agent.RateLimited(o.GetError()) // not repeated: there may be another way
	if o.GetInterrupted() || agent.Repeatable(o.GetError()) && !failed {
		return
	}
	switch o.GetIntent() {
	case h.asking:
		output := o.GetContent().GetOutput()
		if output == nil {
			return // it failed
		}
		if n, known := chat.ContextTokens(output); known {
			h.base = &baseline{messages: h.sent, tokens: n}
		}
	case h.compacting:
		h.ended = append(h.ended, result{output: o.GetContent().GetOutput(), messages: o.GetContent().GetCompacted(), fault: o.GetError()})
	}
}

// Asks returns the calls that a compaction may make.
func (h *Handler) Asks() []agent.Generate {
	if h.Params.Strategy == Native {
		return nil
	}
	return []agent.Generate{{Model: h.summariser()}}
}

// summariser is the name of the model that summarises.
func (h *Handler) summariser() string {
	if h.Params.Model != "" {
		return h.Params.Model
	}
	return h.Model
}

// Next returns the next action before the model is called; ready means that there is none. If forced, the input is
// compacted whatever its size is. It fails if a call of the compaction has failed or the result is over the threshold.
func (h *Handler) Next(run agent.View, forced bool) (action agent.Action, ready bool, err error) {
	if h.settled && !forced {
		return agent.Action{}, true, nil
	}
	input := run.Input()
	tools := infos(run.Tools())
	size, threshold := h.estimate(input, tools), h.threshold()
	if forced || size > threshold {
		action, err = h.compact(run, size, forced)
		return action, false, err
	}
	hasMemory := slices.ContainsFunc(tools, func(t *toolv1.ToolInfo) bool { return t.GetName() == memoryTool })
	if *h.Params.Memory && hasMemory && !h.warned && size > int64(warnAt*float64(threshold)) {
		warning := &agentv1.InputAdded{Reason: memoryTool, Content: agent.Says(modelv1.Role_ROLE_USER, memoryWarning)}
		return agent.Action{Events: []*agentv1.Event{{Kind: &agentv1.Event_InputAdded{InputAdded: warning}}}}, false, nil
	}
	return agent.Action{}, true, nil
}

func infos(tools []*toolv1.ToolDefinition) []*toolv1.ToolInfo {
	all := make([]*toolv1.ToolInfo, len(tools))
	for i, t := range tools {
		all[i] = t.GetInfo()
	}
	return all
}

func (h *Handler) threshold() int64 {
	window := h.Windows[h.Model]
	if window <= 0 {
		window = DefaultWindow
	}
	return h.Params.tokens(window)
}

// estimate returns the size of the input in tokens, tools included: what the last answer reported, and an estimate of
// the messages since then.
func (h *Handler) estimate(input []*modelv1.ChatMessage, tools []*toolv1.ToolInfo) int64 {
	if h.base == nil || h.base.messages > len(input) {
		return h.Counter.Tools(tools) + h.Counter.Messages(input)
	}
	since := input[h.base.messages:]
	if len(since) == 0 {
		return h.base.tokens
	}
	return h.base.tokens + h.Counter.Messages(since)
}

// compact returns the call that a compaction needs next, or its result.
func (h *Handler) compact(run agent.View, size int64, forced bool) (agent.Action, error) {
	c := h.begin(run, forced)
	tools, threshold, left := h.Counter.Tools(infos(run.Tools())), h.threshold(), int64(0)
	for n := range 1 + furtherPasses {
		call, err := c.pass()
		if err != nil {
			return agent.Action{}, err
		}
		if call != nil {
			return agent.Action{Then: *call}, nil
		}
		before := left
		if left = tools + h.Counter.Messages(c.messages); left <= threshold || n > 0 && left >= before {
			break
		}
	}
	if left > threshold {
		return agent.Action{}, fmt.Errorf("compaction leaves %d tokens, more than its threshold of %d: %d of tools and %d of messages; "+
			"choose a higher threshold, fewer tools or another strategy", left, threshold, tools, left-tools)
	}
	return c.compacted(size)
}

// Metadata describes a compaction, in the event of it.
type Metadata struct {
	// Strategy is the agent's, and Applied the one that Auto chose; empty if the strategy is not Auto.
	Strategy Strategy `json:"strategy"`
	Applied  Strategy `json:"strategy_applied,omitempty"`
	// Before and After are numbers of messages.
	Before int `json:"messages_before"`
	After  int `json:"messages_after"`
	// Trigger is `threshold`, or `forced` by a full context window.
	Trigger string `json:"trigger"`
	// FallbackReason is why Auto did not use the provider's own compaction.
	FallbackReason string `json:"fallback_reason,omitempty"`
	// Passes are the strategies of several passes, if they differ.
	Passes []Strategy `json:"passes,omitempty"`
}

func (m Metadata) String() string {
	b, _ := json.Marshal(m) // It has a JSON form.
	return string(b)
}
