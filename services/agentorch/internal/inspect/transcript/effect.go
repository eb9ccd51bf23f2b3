package transcript

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	effectv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/effect/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
)

// addEffect reads events of effects, bounds and notes.
func (b *Builder) addEffect(e *agentv1.Event) error {
	switch k := e.GetKind().(type) {
	case *agentv1.Event_ModelIntent:
		b.modelIntent(e, k.ModelIntent)
	case *agentv1.Event_ModelOutcome:
		b.modelOutcome(e, k.ModelOutcome)
	case *agentv1.Event_ToolsReviewed:
		for _, r := range k.ToolsReviewed.GetContent().GetReviews() {
			b.reviewed[r.GetCallId()] = r
		}
	case *agentv1.Event_ToolIntent:
		b.toolIntent(e, k.ToolIntent)
	case *agentv1.Event_ToolOutcome:
		b.toolOutcome(e, k.ToolOutcome)
	case *agentv1.Event_ExecIntent:
		b.begun(e.GetSeq(), "command for %s in the sandbox %s", k.ExecIntent.GetPurpose(), k.ExecIntent.GetEnvironment())
		t := b.add(e, "sandbox")
		t.Action, t.Cmd, t.Pending = "exec", shell(k.ExecIntent.GetContent().GetArgv()), true
		b.open[e.GetSeq()] = t
	case *agentv1.Event_ExecOutcome:
		b.ended(k.ExecOutcome.GetIntent(), k.ExecOutcome.GetError().GetReason())
		if t := b.finish(e, k.ExecOutcome.GetIntent(), working(k.ExecOutcome.GetTiming())); t != nil {
			result := k.ExecOutcome.GetContent()
			t.Result, t.Output = jsonwrite.Marshal(result.GetExitCode()), jsonwrite.Marshal(string(result.GetStdout())+string(result.GetStderr()))
		}
	case *agentv1.Event_SandboxIntent:
		b.begun(e.GetSeq(), "making of the sandbox %s", k.SandboxIntent.GetEnvironment())
	case *agentv1.Event_SandboxOutcome:
		b.ended(k.SandboxOutcome.GetIntent(), k.SandboxOutcome.GetError().GetReason())
	case *agentv1.Event_WorkerIntent:
		b.begun(e.GetSeq(), "call of a worker: %s", k.WorkerIntent.GetPurpose())
	case *agentv1.Event_WorkerOutcome:
		b.ended(k.WorkerOutcome.GetIntent(), k.WorkerOutcome.GetError().GetReason())
	case *agentv1.Event_SandboxActed:
		b.acted(e, k.SandboxActed.GetContent())
	case *agentv1.Event_ScoreIntent:
		b.begun(e.GetSeq(), "scorer %s", k.ScoreIntent.GetName())
		b.begin(e, "scorer", k.ScoreIntent.GetName(), b.scorers)
		t := b.add(e, "score")
		t.Scorer, t.ScorerArgs, t.Intermediate, t.Pending = k.ScoreIntent.GetScorer().GetName(), rawJSON(k.ScoreIntent.GetScorer().GetParamsJson()), k.ScoreIntent.GetIntermediate(), true
		t.SpanID = b.spans[len(b.spans)-1]
		b.open[e.GetSeq()] = t
	case *agentv1.Event_ScoreOutcome:
		b.ended(k.ScoreOutcome.GetIntent(), k.ScoreOutcome.GetError().GetReason())
		if t := b.finish(e, k.ScoreOutcome.GetIntent(), working(k.ScoreOutcome.GetTiming())); t != nil {
			t.Score, t.Target = scoreOf(k.ScoreOutcome.GetContent().GetScore()), targetJSON(k.ScoreOutcome.GetContent().GetTarget())
			b.end(e, t.SpanID)
		}
	default:
		b.addNote(e)
	}
	return nil
}

func working(t *effectv1.Timing) time.Duration { return t.GetWorking().AsDuration() }

func (b *Builder) modelIntent(e *agentv1.Event, i *agentv1.ModelIntent) {
	t := b.add(e, "model")
	messages := b.conversationOf(e).Input()
	if n := int(i.GetMessageCount()); n < len(messages) {
		messages = messages[:n]
	}
	if i.GetContent() != nil {
		messages = i.GetContent().GetMessages()
	}
	t.Model, t.Role, t.Messages, t.Pending = i.GetModel(), i.GetRole(), messages, true
	offered := i.GetContent().GetTools()
	for _, name := range i.GetTools() {
		if i.GetContent() != nil {
			break
		}
		definitions := b.toolsOf(e)
		if at := slices.IndexFunc(definitions, func(d *toolv1.ToolDefinition) bool { return d.GetInfo().GetName() == name }); at >= 0 {
			offered = append(offered, definitions[at].GetInfo())
		}
	}
	t.Tools, t.ToolChoice, t.Config = chat.ToolsJSON(offered), chat.ToolChoiceJSON(i.GetToolChoice()), chat.ConfigJSON(i.GetConfig())
	if i.GetToolChoice() == nil {
		t.ToolChoice = jsonwrite.Marshal("auto")
	}
	b.open[e.GetSeq()] = t
	b.begun(e.GetSeq(), "turn %d, call of the model %s", i.GetTurn(), i.GetModel())
}

func (b *Builder) modelOutcome(e *agentv1.Event, o *agentv1.ModelOutcome) {
	place := b.place(o.GetIntent())
	b.ended(o.GetIntent(), o.GetError().GetReason(), o.GetFailedAttempts()...)
	t := b.finish(e, o.GetIntent(), working(o.GetTiming()))
	if t == nil {
		return
	}
	t.Retries = max(len(o.GetFailedAttempts()), int(o.GetTiming().GetAttempts())-1) // An error names the latest attempts alone.
	if len(o.GetUnsentOptions()) > 0 || len(o.GetChangedOptions()) > 0 {
		if asked, err := chat.ParseConfig(t.Config); err == nil {
			t.Config = chat.ConfigJSON(chat.Changed(chat.Without(asked, o.GetUnsentOptions()), o.GetChangedOptions()))
		}
	}
	switch {
	case o.GetInterrupted():
		t.Error = jsonwrite.Marshal(cutTexts[cmp.Or(b.cutBy, "limit")])
	case o.GetError() != nil:
		t.Error, t.Traceback = jsonwrite.Marshal(o.GetError().GetMessage()), b.Traceback(o.GetError())
	}
	if output := o.GetContent().GetOutput(); output != nil {
		t.Output = chat.OutputJSON(output)
	}
	switch o.GetCache() { //nolint:exhaustive // an unused cache has no member
	case modelv1.CacheUse_CACHE_USE_READ:
		t.Cache = "read"
	case modelv1.CacheUse_CACHE_USE_WRITE:
		t.Cache = "write"
	}
	t.Call = exchangeJSON(o.GetContent().GetCall())
	b.failedAttempts(t, o, place)
}

// failedAttempts adds an event for each attempt that failed before the call t ended, in front of it. Place is that of
// the call in the words of a traceback. What such attempts used is in the usage of the call.
func (b *Builder) failedAttempts(t *Event, o *agentv1.ModelOutcome, place []string) {
	attempts, calls := o.GetFailedAttempts(), o.GetContent().GetFailedCalls()
	if len(attempts) == 0 {
		return
	}
	began := t.Timestamp
	events := make([]*Event, 0, len(attempts))
	for i, failed := range attempts {
		event := &Event{
			Event: "model", UUID: fmt.Sprintf("%s.attempt.%d", t.UUID, i+1), SpanID: t.SpanID, Timestamp: began, WorkingStart: t.WorkingStart,
			Model: cmp.Or(failed.GetModel(), t.Model), Role: t.Role, Messages: t.Messages, Tools: t.Tools, ToolChoice: t.ToolChoice, Config: t.Config,
			Error: jsonwrite.Marshal(failed.GetError()),
		}
		event.Traceback = TracebackText(append(slices.Clip(place), fmt.Sprintf("attempt %d", i+1)), &agentv1.RunError{Message: failed.GetError()})
		if failed.GetEndTime() != nil {
			event.Completed = new(failed.GetEndTime().AsTime())
			began = event.Completed.Add(failed.GetWait().AsDuration())
		}
		if at := i - (len(attempts) - len(calls)); at >= 0 && calls[at].GetRequestJson() != "" {
			event.Call = exchangeJSON(calls[at])
		}
		events = append(events, event)
	}
	b.events = slices.Insert(b.events, slices.Index(b.events, t), events...)
}

func (b *Builder) toolIntent(e *agentv1.Event, i *agentv1.ToolIntent) *Event {
	t := b.tool(e, i.GetContent(), i.GetCallId(), i.GetFunction())
	t.Agent, t.AgentSpanID, t.Pending = i.GetAgent(), i.GetAgentSpan(), true
	b.begun(e.GetSeq(), "call of the tool %s", i.GetFunction())
	b.open[e.GetSeq()] = t
	return t
}

// tool opens the span of a call and its event.
func (b *Builder) tool(e *agentv1.Event, call *toolv1.ToolCall, id, function string) *Event {
	span := b.begin(e, "tool", function, b.step)
	t := b.add(e, "tool")
	t.Type, t.ID, t.Function, t.SpanID = "function", id, function, span
	t.View = viewJSON(b.reviewed[id].GetView())
	t.Arguments = rawJSON(call.GetArgumentsJson())
	if t.Arguments == nil {
		t.Arguments = json.RawMessage(`{}`)
	}
	return t
}

func (b *Builder) toolOutcome(e *agentv1.Event, o *agentv1.ToolOutcome) {
	b.ended(o.GetIntent(), o.GetFailure().GetReason())
	t := b.finish(e, o.GetIntent(), working(o.GetTiming()))
	if t == nil {
		t = b.tool(e, o.GetContent().GetCall(), o.GetCallId(), o.GetFunction())
	}
	result := o.GetContent().GetResult()
	t.MessageID = o.GetMessageId()
	t.Result = contentJSON(result.GetContent())
	if o.GetErrorType() != toolv1.ToolErrorType_TOOL_ERROR_TYPE_UNSPECIFIED {
		t.Error = jsonwrite.Marshal(map[string]string{"type": chat.ToolErrorName(o.GetErrorType()), "message": result.GetError().GetMessage()})
	}
	switch cancelled := o.GetErrorType() == toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED; {
	case cancelled && b.bound == limit.Time:
		t.Error = nil // A bound of time leaves the calls that it cut as they were.
	case cancelled:
		t.Failed = o.GetInterrupted() || b.bound == limit.Working
	}
	if failure := o.GetFailure(); failure != nil {
		t.Result = nil
		cancelled := failure.GetReason() == rpcerr.ReasonName(errorsv1.ErrorReason_ERROR_REASON_EFFECT_CANCELLED)
		// The run's own error records what the failure of a call did to the run. A limit of time leaves the calls that
		// it cut as they were.
		t.Failed = !cancelled || b.bound != limit.Time
		if t.Failed && cancelled {
			t.Error = jsonwrite.Marshal(map[string]string{
				"type":    chat.ToolErrorName(toolv1.ToolErrorType_TOOL_ERROR_TYPE_CANCELLED),
				"message": failure.GetMessage(),
			})
		}
	}
	if cut := o.GetTruncation(); cut != nil {
		t.Truncated = []int64{cut.GetRawBytes(), cut.GetLimitBytes()}
	}
	for i, action := range result.GetSandboxActions() {
		a := b.acted(e, action)
		a.SpanID = t.SpanID
		a.UUID += fmt.Sprintf(".sandbox.%d", i+1)
	}
	b.store(e, result.GetStoreChanges())
	for i, note := range result.GetNotes() {
		n := b.add(e, "info")
		n.UUID += fmt.Sprintf(".note.%d", i+1)
		n.SpanID, n.Data = t.SpanID, jsonwrite.Marshal(note)
	}
	b.end(e, t.SpanID)
}

func (b *Builder) acted(e *agentv1.Event, a *toolv1.SandboxAction) *Event {
	t := b.add(e, "sandbox")
	t.Action, t.Cmd, t.File, t.Options = enum.Word(a.GetAction()), a.GetCommand(), a.GetFile(), rawJSON(a.GetOptionsJson())
	if a.GetInput() != "" {
		t.Input = jsonwrite.Marshal(a.GetInput())
	}
	if a.ExitCode != nil {
		t.Result = jsonwrite.Marshal(a.GetExitCode())
	}
	if a.GetOutput() != "" {
		t.Output = jsonwrite.Marshal(a.GetOutput())
	}
	return t
}
