package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/chat/chattest"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/pkg/goldentest/corpus"
	"github.com/evalfleet/evalfleet/pkg/goldentest/match"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/inspect/transcript"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/scorewire"
)

func TestGoldenReact(t *testing.T) {
	t.Parallel()
	for _, theme := range []string{"react_submit", "react_loop", "react_tools", "react_overflow", "react_limits"} {
		goldentest.Run(t, theme, goldentest.Load(t, "agents/"+theme+".json"), reactCase, goldentest.Parallel())
	}
}

// reactCase runs the agent of a case as the one step of a run, and compares all that can be seen of it.
func reactCase(t *goldentest.T, c goldentest.Case) {
	f := newFleet(t)
	script := &script{outputs: map[string][]scripted{"main": outputs(t, c.At("model_outputs"))}}
	if c.At("sample_limits", "cost_limit") != nil {
		prices := &modelv1.Prices{Input: 1000, Output: 2000} // as recorded, in dollars per million tokens
		for i, o := range script.outputs["main"] {
			script.outputs["main"][i] = priced(o, prices)
		}
	}
	more, _ := c.At("more_models").(map[string]any)
	for name, recorded := range more {
		script.outputs[name] = outputs(t, recorded)
	}
	f.Models.Answer = script.answer
	f.Tools.Tools = scriptedTools()
	f.Tools.Tools["operator"] = f.operator()
	spec := reactSpec(t, c)
	var asked *atomic.Int32
	if steps, ok := c.At("agent", "on_continue", "steps").([]any); ok {
		asked = f.guided(t, steps)
	}
	if scores, ok := c.At("scores").([]any); ok {
		f.Scorers = score.NewRegistry(scoresInTurn(t, scores))
		spec.Scorers = []*agentv1.ScorerRef{{Name: "scripted"}}
	}
	f.start()

	plan, err := f.Runs.Check(t.Context(), "p", spec)
	if c.At("expect", "rejected") != nil {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	state := f.Finish(f.launch(plan))

	want, _ := c.At("expect").(map[string]any)
	got := f.reactOutcome(t, state)
	if n := script.unused(); len(n) > 0 {
		got["unused_outputs"] = n
	}
	if asked != nil {
		got["on_continue_calls"] = asked.Load()
	}
	if want["error"] != nil && got["error"] != nil {
		got["error"] = want["error"] // only the presence of an error is compared
	}
	asRecorded(want["events"], got["events"])
	t.EqualMessages(want, got, match.EmptyAsAbsent("tool_calls"))
}

// reactSpec returns the specification of a case. A case that parameters cannot express fails.
func reactSpec(t *goldentest.T, c goldentest.Case) *agentv1.RunSpec {
	config, _ := c.At("agent").(map[string]any)
	params := map[string]any{}
	spec := &agentv1.RunSpec{Model: &agentv1.ModelRef{Model: "mockllm/main"}}
	step := &agentv1.AgentRef{Name: fmt.Sprint(config["kind"])}
	for name, value := range config {
		switch name {
		case "kind", "description": // A description is for agents that call this one.
		case "name":
			step.DisplayName = fmt.Sprint(value)
		case "tools":
			step.Tools = refs(t, value)
		case "model":
			model, ok := value.(string)
			require.True(t, ok, "a model that is an agent")
			params["model"] = "mockllm/" + model
		case "on_continue":
			if _, function := value.(map[string]any); function {
				value = map[string]any{"worker": guide}
			}
			params[name] = value
		default:
			params[name] = value
		}
	}
	document, err := json.Marshal(params)
	require.NoError(t, err)
	step.ParamsJson = string(document)
	spec.Steps = []*agentv1.AgentRef{step}
	spec.Input = inputOf(t, c)
	if bounds, ok := c.At("sample_limits").(map[string]any); ok {
		spec.Limits, err = limits(bounds)
		require.NoError(t, err)
	}
	return spec
}

func refs(t *goldentest.T, recorded any) (all []*toolv1.ToolRef) {
	list, _ := recorded.([]any)
	for _, item := range list {
		name, ok := item.(string)
		require.True(t, ok, "a tool that is no scripted one")
		all = append(all, &toolv1.ToolRef{Name: name})
	}
	return all
}

func parsed(t *goldentest.T, recorded any) []*modelv1.ChatMessage {
	document, err := json.Marshal(recorded)
	require.NoError(t, err)
	messages, err := chattest.Messages(document)
	require.NoError(t, err)
	return messages
}

func outputs(t *goldentest.T, recorded any) (all []scripted) {
	list, _ := recorded.([]any)
	for _, item := range list {
		object, _ := item.(map[string]any)
		delay, _ := object["delay_s"].(json.Number)
		seconds, _ := delay.Float64()
		expanded, err := corpus.Expand(without(object, "delay_s"))
		require.NoError(t, err)
		document, err := json.Marshal(expanded)
		require.NoError(t, err)
		output, err := chat.ParseOutput(document)
		require.NoError(t, err)
		all = append(all, scripted{output, time.Duration(seconds * float64(time.Second))})
	}
	return all
}

func without(object map[string]any, name string) map[string]any {
	rest := map[string]any{}
	for key, value := range object {
		if key != name {
			rest[key] = value
		}
	}
	return rest
}

// scoresInTurn is a scorer that gives recorded values one after the other; the last repeats.
func scoresInTurn(t *goldentest.T, recorded []any) score.Definition {
	var mu sync.Mutex
	judge := func(score.Input) (score.Score, error) {
		mu.Lock()
		defer mu.Unlock()
		value := recorded[0]
		if len(recorded) > 1 {
			recorded = recorded[1:]
		}
		return score.Score{Value: scoreValue(t, value)}, nil
	}
	return score.Definition{Name: "scripted", New: func(json.RawMessage) (score.Scorer, error) { return score.Func(judge), nil }}
}

func scoreValue(t *goldentest.T, recorded any) score.Value {
	switch value := recorded.(type) {
	case string:
		return score.Text(value)
	case bool:
		return score.Bool(value)
	case json.Number:
		number, err := value.Float64()
		require.NoError(t, err)
		return score.Number(number)
	}
	t.Fatalf("no score is %v", recorded)
	return score.Value{}
}

// asRecorded changes events where a record only holds that there is a value: the error of a model call is the
// recorder's own text, long texts are stored elsewhere, and tokens of a compaction are its estimates. In another place
// the record holds nothing: its turns were cut by the agent's own channel, and logs report a call that an operator cut
// as cancelled.
func asRecorded(want, got any) {
	recorded, _ := want.([]any)
	events, _ := got.([]any)
	for i := range min(len(recorded), len(events)) {
		before, _ := recorded[i].(map[string]any)
		after, _ := events[i].(map[string]any)
		if before["event"] == "model" && before["error"] != nil && after["error"] != nil {
			after["error"] = before["error"]
		}
		if after["function"] == "operator" && after["error"] == "cancelled" && before["error"] == nil {
			delete(after, "error")
			delete(after, "failed")
		}
		if before["event"] == "compaction" && after["tokens_after"] != nil {
			after["tokens_before"], after["tokens_after"] = before["tokens_before"], before["tokens_after"]
		}
		kept, _ := before["arguments"].(map[string]any)
		arguments, _ := after["arguments"].(map[string]any)
		for name, value := range kept {
			reference, _ := value.(string)
			text, _ := arguments[name].(string)
			if strings.HasPrefix(reference, "attachment://") && len(text) > 100 {
				arguments[name] = reference
			}
		}
	}
}

// reactOutcome is what a case records of a run that has ended.
func (f *fleet) reactOutcome(t *goldentest.T, s *run.State) map[string]any {
	got := map[string]any{
		"status": "success", "messages": recordedForm(t, s.Messages()), "limit": limitOf(s), "error": nil,
		"output": map[string]any{"completion": chat.Completion(s.Output()), "stop_reason": stopReason(s.Output())},
		"events": f.recordedEvents(t, s.Name),
	}
	if s.Error != nil {
		got["status"], got["error"] = "error", map[string]any{}
	}
	generates := []any{}
	for _, r := range f.Models.Requests() {
		generates = append(generates, generated(t, r))
	}
	got["generates"], got["generate_calls"] = generates, len(generates)
	if scored := f.scored(s.Name); len(scored) > 0 {
		got["scored"] = scored
	}
	if final := s.FinalScores(); len(final) > 0 {
		got["final_score"] = scorewire.ToValue(final[0].GetScore().GetValue())
	}
	return got
}

// generated is a call of a model.
func generated(t *goldentest.T, r *modelv1.GenerateRequest) map[string]any {
	tools, choice := []any{}, "auto"
	for _, info := range r.GetTools() {
		tools = append(tools, info.GetName())
	}
	if len(tools) == 0 {
		choice = "none"
	}
	return map[string]any{"model": nameOf(r), "messages": recordedForm(t, r.GetMessages()), "tools": tools, "tool_choice": choice}
}

// scored is what the scorers saw each time.
func (f *fleet) scored(name string) (all []any) {
	s := run.New(name, nil)
	for e, err := range f.Events(name) {
		require.NoError(f.T, err)
		require.NoError(f.T, s.Apply(e))
		if e.GetScoreOutcome() != nil {
			all = append(all, map[string]any{"answer": chat.Completion(s.Output()), "messages": len(s.Messages())})
		}
	}
	return all
}

func stopReason(output *modelv1.ModelOutput) any {
	if len(output.GetChoices()) == 0 {
		return nil
	}
	return chat.StopReasonName(output.GetChoices()[0].GetStopReason())
}

// recordedEvents are the events of a run's log that cases record, in their short form.
func (f *fleet) recordedEvents(t *goldentest.T, name string) []any {
	events := []any{}
	for _, e := range f.transcriptOf(name) {
		if recorded := recordedEvent(t, e); recorded != nil {
			recorded["event"] = e.Event
			events = append(events, recorded)
		}
	}
	return events
}

func recordedEvent(t *goldentest.T, e *transcript.Event) map[string]any {
	switch e.Event {
	case "span_begin":
		if slices.Contains([]string{"agent", "handoff", "tool"}, e.Type) {
			return map[string]any{"type": e.Type, "name": e.Name}
		}
		return nil
	case "model":
		recorded := map[string]any{"stop_reason": "stop"}
		if e.Error != nil {
			recorded["error"] = asJSON(t, e.Error)
		}
		var output struct {
			Choices []struct {
				StopReason string `json:"stop_reason"`
			} `json:"choices"`
		}
		decode(t, e.Output, &output)
		if len(output.Choices) > 0 {
			recorded["stop_reason"] = output.Choices[0].StopReason
		}
		return recorded
	case "tool":
		recorded := map[string]any{"id": e.ID, "function": e.Function, "arguments": asJSON(t, e.Arguments)}
		if e.Error != nil {
			var failure struct {
				Type string `json:"type"`
			}
			decode(t, e.Error, &failure)
			recorded["error"] = failure.Type
		}
		if e.Failed {
			recorded["failed"] = true
		}
		return recorded
	case "info":
		return map[string]any{"data": asJSON(t, e.Data)}
	case "sample_limit":
		return map[string]any{"type": e.Type, "limit": *e.Limit}
	case "compaction":
		return map[string]any{"type": e.Type, "tokens_before": e.TokensBefore, "tokens_after": e.TokensAfter, "metadata": asJSON(t, e.Metadata)}
	case "approval":
		return map[string]any{}
	default:
		return nil
	}
}
