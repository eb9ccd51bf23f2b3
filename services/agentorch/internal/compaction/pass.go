package compaction

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/history"
)

// attempt is one compaction. It is made anew for each decision, from the input and from the calls that have ended.
type attempt struct {
	handler *Handler
	params  *Params
	forced  bool
	// input is what the model is sent now, and pinned are the messages that always stay.
	input, pinned []*modelv1.ChatMessage
	// messages are the result of the passes so far; unused are the results of calls that no pass has used yet.
	messages []*modelv1.ChatMessage
	unused   []result
	// reserve is how many tokens an answer may have; 0 if no bound is configured.
	reserve int64
	// summary is the message of the last pass that summarised.
	summary *modelv1.ChatMessage
	// applied are the strategies of the passes, fallback the first reason against the provider's own.
	applied  []Strategy
	fallback string
}

func (h *Handler) begin(run agent.View, forced bool) *attempt {
	first := run.Messages()
	if h.prefix > 0 {
		first = first[:min(h.prefix, len(first))]
	}
	system, input, _ := history.Partition(first)
	return &attempt{
		handler: h, params: &h.Params, forced: forced, input: run.Input(), pinned: slices.Concat(system, input), messages: run.Input(), unused: h.ended,
		reserve: run.Spec().GetConfig().GetMaxTokens(),
	}
}

// pass applies the strategy once. It returns the call that it needs first, if there is one.
func (a *attempt) pass() (*agent.Compact, error) {
	a.summary = nil
	switch p := a.params; p.Strategy {
	case Trim:
		trimmed, err := history.Trim(a.messages, *p.Preserve)
		if err != nil {
			return nil, err
		}
		if *p.Memory {
			trimmed = withoutNotes(trimmed)
		}
		a.leave(Trim, trimmed)
	case Edit:
		a.leave(Edit, p.edit(a.messages))
	case Summary:
		return a.summarise()
	case Native:
		return a.native()
	case Auto:
		return a.auto()
	}
	return nil, nil
}

// leave sets the result of a pass.
func (a *attempt) leave(by Strategy, messages []*modelv1.ChatMessage) {
	a.applied, a.messages = append(a.applied, by), messages
}

// take returns the next result that no pass has used.
func (a *attempt) take() (r result, ok bool) {
	if len(a.unused) == 0 {
		return result{}, false
	}
	r, a.unused = a.unused[0], a.unused[1:]
	return r, true
}

func (a *attempt) summarise() (*agent.Compact, error) {
	done, ok := a.take()
	if !ok {
		model := a.handler.summariser()
		request := a.params.summaryRequest(a.messages, a.handler.Windows[model], a.reserve, a.handler.Counter.Messages)
		return &agent.Compact{Model: model, Messages: request, MayFail: a.forced}, nil
	}
	if done.fault != nil {
		return nil, fmt.Errorf("the conversation was not summarised: %s", done.fault.GetMessage())
	}
	text := chat.Completion(done.output)
	switch chat.StopReason(done.output) { //nolint:exhaustive // others leave what the model wrote
	case modelv1.StopReason_STOP_REASON_MODEL_LENGTH:
		return nil, errors.New("the conversation is too long to be summarised; choose a lower threshold of the compaction")
	case modelv1.StopReason_STOP_REASON_CONTENT_FILTER:
		return nil, errors.New("the model refused to summarise the conversation; choose another model or strategy for the compaction")
	}
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("the model gave an empty summary of the conversation; choose another model or strategy for the compaction")
	}
	left, summary := summarised(a.messages, text)
	a.leave(Summary, left)
	a.summary = summary
	return nil, nil
}

func (a *attempt) native() (*agent.Compact, error) {
	done, ok := a.take()
	if !ok {
		return &agent.Compact{
			Model: a.handler.Model, Messages: a.messages, Native: true, Instructions: a.params.Instructions, MayFail: a.forced || a.params.Strategy == Auto,
		}, nil
	}
	if done.fault != nil {
		return nil, fmt.Errorf("the provider did not compact the conversation: %s; the strategy auto summarises then", done.fault.GetMessage())
	}
	a.leave(Native, done.messages)
	return nil, nil
}

func (a *attempt) auto() (*agent.Compact, error) {
	if len(a.unused) > 0 && a.unused[0].fault != nil {
		done, _ := a.take()
		if a.fallback == "" {
			a.fallback = done.fault.GetMessage()
		}
		return a.summarise()
	}
	return a.native()
}

// compacted returns the events of the compaction, whose input had size tokens.
func (a *attempt) compacted(size int64) (agent.Action, error) {
	after := a.restored()
	last := a.applied[len(a.applied)-1]
	metadata := Metadata{Strategy: a.params.Strategy, Before: len(a.input), After: len(after), Trigger: "threshold", FallbackReason: a.fallback}
	if a.forced {
		metadata.Trigger = "forced"
	}
	if last != a.params.Strategy {
		metadata.Applied = last
	}
	if slices.ContainsFunc(a.applied, func(s Strategy) bool { return s != last }) {
		metadata.Passes = a.applied
	}
	events := []*agentv1.Event{agent.Compacted(a.input, after, &agentv1.Compacted{
		Type: typeOf(a.params.Strategy), TokensBefore: size, TokensAfter: a.handler.Counter.Messages(after), MetadataJson: metadata.String(),
	})}
	if a.summary != nil {
		events = append(events, agent.Add(a.summary))
	}
	return agent.Action{Events: events}, nil
}

// restored returns what is left with the messages that always stay. Of these the provider's own compaction keeps the
// system messages alone, since it has read the others; an edit removes none.
func (a *attempt) restored() []*modelv1.ChatMessage {
	by := a.applied[len(a.applied)-1]
	var system, others []*modelv1.ChatMessage
	for _, m := range a.pinned {
		switch {
		case a.has(m):
		case m.GetRole() == modelv1.Role_ROLE_SYSTEM:
			system = append(system, m)
		case by == Trim || by == Summary:
			others = append(others, m)
		}
	}
	isOther := func(m *modelv1.ChatMessage) bool { return m.GetRole() != modelv1.Role_ROLE_SYSTEM }
	lead := slices.IndexFunc(a.messages, isOther)
	if lead < 0 {
		lead = len(a.messages)
	}
	return slices.Concat(system, a.messages[:lead], others, a.messages[lead:])
}

// has reports whether a message is left, as it is or without its citations.
func (a *attempt) has(m *modelv1.ChatMessage) bool {
	plain := history.WithoutCitations(m)
	return slices.ContainsFunc(a.messages, func(left *modelv1.ChatMessage) bool {
		return left.GetId() == m.GetId() || left.GetId() == "" && proto.Equal(left, plain)
	})
}

func typeOf(s Strategy) agentv1.CompactionType {
	switch s {
	case Trim:
		return agentv1.CompactionType_COMPACTION_TYPE_TRIM
	case Edit:
		return agentv1.CompactionType_COMPACTION_TYPE_EDIT
	case Auto, Native, Summary:
	}
	return agentv1.CompactionType_COMPACTION_TYPE_SUMMARY
}
