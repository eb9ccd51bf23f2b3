package evalexport

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/json/jsonwrite"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/evallog"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/transcript"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
)

// writer writes the parts of a sample, each long text and message once.
type writer struct {
	jsonwrite.Writer

	condenser *evallog.Condenser
	media     media
	sample    *agentv1.Sample
	pooled    map[*modelv1.ChatMessage]json.RawMessage
	// warnings are those of the evaluation, which name the options that are not sent to models.
	warnings []*agentv1.EvalWarning
}

// sent is the configuration of a call as it is sent to its model, according to the evaluation's warnings.
func (w *writer) sent(model string, config json.RawMessage) json.RawMessage {
	for _, warning := range w.warnings {
		asked, err := chat.ParseConfig(config)
		ofCalls := warning.GetField() == "" || strings.HasPrefix(warning.GetField(), run.FieldSteps)
		if err == nil && warning.GetModel() == model && ofCalls {
			config = chat.ConfigJSON(sentOf(asked, warning))
		}
	}
	return config
}

// kinds write the members that a kind of event has besides the common ones. Readers refuse a sample with an event that
// lacks a member, or has an unknown word, so each function writes all members that its kind needs.
var kinds = map[string]func(*writer, *transcript.Event){
	"span_begin":   (*writer).spanBegin,
	"span_end":     (*writer).spanEnd,
	"sample_init":  (*writer).sampleInit,
	"sample_limit": (*writer).sampleLimit,
	"model":        (*writer).model,
	"tool":         (*writer).tool,
	"sandbox":      (*writer).sandbox,
	"score":        (*writer).score,
	"state":        (*writer).changes,
	"store":        (*writer).changes,
	"info":         (*writer).info,
	"logger":       (*writer).logger,
	"error":        (*writer).failure,
	"approval":     (*writer).approval,
	"interrupt":    (*writer).interrupt,
	"compaction":   (*writer).compaction,
	"branch":       (*writer).branch,
	"anchor":       (*writer).anchor,
	"subtask":      (*writer).subtask,
	"input":        (*writer).question,
}

// event writes an event; nil for events that a log cannot have: a missing score, and an interrupt of an unknown kind.
func (w *writer) event(e *transcript.Event) json.RawMessage {
	write, known := kinds[e.Event]
	if !known || e.Event == "score" && e.Score == nil || e.Event == "interrupt" && (!slices.Contains(interrupters, e.Source) || !slices.Contains(interruptible, e.Interrupted)) {
		return nil
	}
	w.Writer = jsonwrite.Writer{}
	w.BeginObject()
	w.TextMember("uuid", e.UUID)
	w.TextUnlessEmpty("span_id", e.SpanID)
	w.TextMember("timestamp", evallog.Stamp(e.Timestamp))
	w.RawMember("working_start", evallog.Number(e.WorkingStart))
	w.TextMember("event", e.Event)
	write(w, e)
	if e.Completed != nil && timed[e.Event] {
		w.TextMember("completed", evallog.Stamp(*e.Completed))
	}
	if e.WorkingTime != nil && timed[e.Event] && e.Event != "sandbox" {
		w.RawMember("working_time", evallog.Number(*e.WorkingTime))
	}
	w.EndObject()
	return w.Bytes()
}

// timed are the kinds with a time of completion.
var timed = map[string]bool{"model": true, "tool": true, "sandbox": true, "subtask": true}

func (w *writer) spanBegin(e *transcript.Event) {
	w.TextMember("id", e.ID)
	w.TextUnlessEmpty("parent_id", e.ParentID)
	w.TextUnlessEmpty("type", e.Type)
	w.TextMember("name", e.Name)
}

func (w *writer) spanEnd(e *transcript.Event) { w.TextMember("id", e.ID) }

func (w *writer) sampleInit(e *transcript.Event) {
	id := jsonText(w.sample.GetId())
	if w.sample.GetIntegerId() {
		id = json.RawMessage(w.sample.GetId())
	}
	input := w.input(w.sample)
	w.Key("sample")
	w.BeginObject()
	if w.sample.GetInputText() {
		w.RawMember("input", string(w.condenser.Any(input)))
	} else {
		w.Key("input")
		w.BeginList()
		for _, m := range w.sample.GetInput() {
			w.Raw(string(w.condenser.Message(chat.MessageJSON(w.media.inline(m)))))
		}
		w.EndList()
	}
	if choices := w.sample.GetChoices(); len(choices) > 0 {
		w.TextList("choices", choices)
	}
	w.RawMember("target", string(targetOf(w.sample.GetTarget())))
	w.RawMember("id", string(id))
	w.RawUnlessEmpty("metadata", string(raw(w.sample.GetMetadataJson())))
	w.EndObject()
	w.RawMember("state", string(w.condenser.Any(e.State)))
}

// limits are the kinds of limits that an event may name; `context`, for one, is a limit of a sample alone.
var limits = []string{"message", "time", "working", "token", "turn", "cost", "operator", "custom"}

func (w *writer) sampleLimit(e *transcript.Event) {
	w.TextMember("type", oneOf(limits, e.Type, "custom"))
	w.RawMember("message", string(textual(e.Message)))
	if e.Limit != nil {
		w.RawMember("limit", evallog.Number(*e.Limit))
	}
}

func (w *writer) model(e *transcript.Event) {
	w.TextMember("model", e.Model)
	w.TextUnlessEmpty("role", e.Role)
	w.RawMember("input", "[]")
	w.Key("input_refs")
	w.BeginList()
	for _, r := range w.condenser.Pool(w.pool(e.Messages)) {
		w.BeginList()
		w.Int(int64(r[0]))
		w.Int(int64(r[1]))
		w.EndList()
	}
	w.EndList()
	w.RawMember("tools", cmp.Or(string(w.condenser.Tools(e.Tools)), "[]"))
	w.RawMember("tool_choice", cmp.Or(string(e.ToolChoice), `"auto"`))
	config := e.Config
	if len(e.Error) > 0 { // An answer itself records what was not sent.
		config = w.sent(e.Model, config)
	}
	w.RawMember("config", cmp.Or(string(readable(config)), "{}"))
	output := e.Output
	if output == nil {
		output = unanswered(e)
	}
	w.RawMember("output", string(w.condenser.Output(output)))
	if e.Retries > 0 {
		w.IntMember("retries", int64(e.Retries))
	}
	w.RawUnlessEmpty("error", string(e.Error))
	if e.Traceback != "" {
		w.TextMember("traceback", e.Traceback)
		w.TextMember("traceback_ansi", e.Traceback)
	}
	w.TextUnlessEmpty("cache", e.Cache)
	if isObject(e.Call) {
		w.RawMember("call", string(w.condenser.Any(e.Call)))
	}
}

// unanswered is the output that Inspect gives a model call without an answer: an empty text.
func unanswered(e *transcript.Event) json.RawMessage {
	message := chat.Assistant("")
	message.Id = e.UUID // so that each export is the same
	return chat.OutputJSON(chat.MessageOutput(e.Model, message, modelv1.StopReason_STOP_REASON_STOP))
}

// pool writes messages for the pool, each once a sample.
func (w *writer) pool(messages []*modelv1.ChatMessage) []json.RawMessage {
	if w.pooled == nil {
		w.pooled = map[*modelv1.ChatMessage]json.RawMessage{}
	}
	all := make([]json.RawMessage, len(messages))
	for i, m := range messages {
		if w.pooled[m] == nil {
			w.pooled[m] = w.condenser.Message(chat.MessageJSON(w.media.inline(m)))
		}
		all[i] = w.pooled[m]
	}
	return all
}

func (w *writer) tool(e *transcript.Event) {
	w.TextMember("type", "function")
	w.TextMember("id", e.ID)
	w.TextMember("function", e.Function)
	arguments := e.Arguments
	if !isObject(arguments) {
		arguments = json.RawMessage("{}")
	}
	w.RawMember("arguments", string(w.condenser.Any(arguments)))
	w.RawUnlessEmpty("view", string(w.condenser.Any(e.View)))
	w.RawMember("result", cmp.Or(string(w.condenser.Media(e.Result)), `""`))
	if len(e.Truncated) == 2 {
		w.Key("truncated")
		w.BeginList()
		w.Int(e.Truncated[0])
		w.Int(e.Truncated[1])
		w.EndList()
	}
	w.RawUnlessEmpty("error", string(e.Error))
	w.RawMember("events", "[]")
	w.TextUnlessEmpty("agent", e.Agent)
	w.TextUnlessEmpty("agent_span_id", e.AgentSpanID)
	if e.Failed {
		w.BoolMember("failed", true)
	}
	w.TextUnlessEmpty("message_id", e.MessageID)
}

func (w *writer) sandbox(e *transcript.Event) {
	w.TextMember("action", oneOf([]string{"exec", "read_file", "write_file"}, e.Action, "exec"))
	w.TextUnlessEmpty("cmd", e.Cmd)
	if isObject(e.Options) {
		w.RawMember("options", string(e.Options))
	}
	w.TextUnlessEmpty("file", e.File)
	w.RawUnlessEmpty("input", string(e.Input))
	w.RawUnlessEmpty("result", string(e.Result))
	w.RawUnlessEmpty("output", string(e.Output))
}

func (w *writer) score(e *transcript.Event) {
	s := scoreOf("", *e.Score)
	w.RawMember("score", string(s.JSON()))
	w.RawUnlessEmpty("target", string(e.Target))
	w.BoolMember("intermediate", e.Intermediate)
	w.TextUnlessEmpty("scorer", e.Scorer)
	if isObject(e.ScorerArgs) {
		w.RawMember("scorer_args", string(e.ScorerArgs))
	}
	w.usage("model_usage", e.ModelUsage)
	w.usage("role_usage", e.RoleUsage)
}

// usage writes usages by name, unless there are none.
func (w *writer) usage(name string, by map[string]*modelv1.ModelUsage) {
	if len(by) == 0 {
		return
	}
	w.Key(name)
	w.BeginObject()
	for _, u := range usages(by) {
		w.RawMember(u.Name, string(u.Value))
	}
	w.EndObject()
}

func (w *writer) changes(e *transcript.Event) {
	w.Key("changes")
	w.BeginList()
	for _, c := range e.Changes {
		w.BeginObject()
		w.TextMember("op", c.Op)
		w.TextMember("path", c.Path)
		if c.Op != "remove" {
			w.RawMember("value", cmp.Or(string(w.condenser.Any(c.Value)), "null"))
		}
		w.EndObject()
	}
	w.EndList()
}

func (w *writer) info(e *transcript.Event) {
	w.TextUnlessEmpty("source", e.Source)
	w.RawMember("data", cmp.Or(string(w.condenser.Any(e.Data)), "null"))
}

// levels are the levels of log lines.
var levels = []string{"debug", "trace", "http", "sandbox", "info", "warning", "error", "critical"}

func (w *writer) logger(e *transcript.Event) {
	var line struct {
		Name    string          `json:"name"`
		Level   string          `json:"level"`
		Message string          `json:"message"`
		Created json.RawMessage `json:"created"`
	}
	_ = json.Unmarshal(e.Message, &line) // The transcript wrote it.
	w.Key("message")
	w.BeginObject()
	w.TextUnlessEmpty("name", line.Name)
	w.TextMember("level", oneOf(levels, line.Level, "info"))
	w.TextMember("message", line.Message)
	w.RawMember("created", cmp.Or(string(line.Created), "0"))
	w.EndObject()
}

func (w *writer) failure(e *transcript.Event) { w.RawMember("error", string(e.Error)) }

func (w *writer) approval(e *transcript.Event) {
	w.RawMember("message", string(textual(e.Message)))
	w.RawMember("call", cmp.Or(string(e.Call), `{"id":"","function":"","arguments":{},"type":"function"}`))
	w.TextMember("approver", e.Approver)
	w.TextMember("decision", oneOf([]string{"approve", "modify", "reject", "escalate", "terminate"}, e.Decision, "reject"))
	w.RawUnlessEmpty("modified", string(e.Modified))
	w.TextUnlessEmpty("explanation", e.Explanation)
}

// interrupters are the sources of interrupts, interruptible the activities that they cut.
var (
	interrupters  = []string{"user_cancel", "limit", "system"}
	interruptible = []string{"generate", "tool_call", "between_turns"}
)

func (w *writer) interrupt(e *transcript.Event) {
	w.TextMember("source", e.Source)
	w.TextMember("interrupted", e.Interrupted)
	w.TextUnlessEmpty("interrupted_tool_call_id", e.CallID)
}

func (w *writer) compaction(e *transcript.Event) {
	w.TextMember("type", oneOf([]string{"summary", "edit", "trim"}, e.Type, "summary"))
	w.IntMember("tokens_before", e.TokensBefore)
	w.IntMember("tokens_after", e.TokensAfter)
	w.TextUnlessEmpty("source", e.Source)
	if isObject(e.Metadata) {
		w.RawMember("metadata", string(e.Metadata))
	}
}

func (w *writer) branch(e *transcript.Event) { w.TextMember("from_anchor", e.FromAnchor) }

func (w *writer) anchor(e *transcript.Event) {
	w.TextMember("anchor_id", e.AnchorID)
	w.TextUnlessEmpty("source", e.Source)
}

func (w *writer) subtask(e *transcript.Event) {
	w.TextMember("name", e.Name)
	w.TextUnlessEmpty("type", e.Type)
	input := e.Input
	if !isObject(input) {
		input = json.RawMessage(`{"input":` + cmp.Or(string(input), "null") + `}`)
	}
	w.RawMember("input", string(input))
	w.RawMember("result", cmp.Or(string(e.Result), "null"))
	w.RawMember("events", "[]")
}

func (w *writer) question(e *transcript.Event) {
	asked := string(textual(e.Input))
	w.RawMember("input", asked)
	w.RawMember("input_ansi", asked)
	if slices.Contains([]string{"accepted", "declined", "cancelled"}, e.Decision) {
		w.TextMember("outcome", e.Decision)
	}
	if isObject(e.Data) {
		w.RawMember("content", string(e.Data))
	}
}

// oneOf returns word if it is known, and otherwise otherwise.
func oneOf(known []string, word, otherwise string) string {
	if slices.Contains(known, word) {
		return word
	}
	return otherwise
}

// textual is a JSON text: the value itself, or its encoding as a text.
func textual(value json.RawMessage) json.RawMessage {
	if len(value) > 0 && value[0] == '"' {
		return value
	}
	return jsonText(string(value))
}

func isObject(value json.RawMessage) bool { return len(value) > 0 && value[0] == '{' }

func jsonText(text string) json.RawMessage { return jsonwrite.AppendText(nil, text) }
