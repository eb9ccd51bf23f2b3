package engine_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/scorewire"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

func TestGoldenLimits(t *testing.T) {
	t.Parallel()
	goldentest.Run(t, "limits", goldentest.Load(t, "core/limits.jsonl"), limitCase, goldentest.Parallel())
}

// limitCase runs a whole sample under bounds.
func limitCase(t *goldentest.T, c goldentest.Case) {
	f := newFleet(t, chatDefinition())
	var prices *modelv1.Prices
	if c.At("input", "model") == "paid" {
		prices = &modelv1.Prices{Input: 1e6, Output: 2e6} // as recorded: 1 $ for a token that is read, 2 $ for one that is written
	}
	script := &script{outputs: map[string][]scripted{"main": limitOutputs(t, c.At("input", "script"), prices)}, repeat: true}
	f.Models.Answer = script.answer
	f.Tools.Tools = scriptedTools()
	f.start()

	recorded, _ := c.At("input", "limits").(map[string]any)
	bounds, err := limits(recorded)
	refused := c.At("expect", "error", "kind") != nil
	if refused && err != nil {
		return
	}
	require.NoError(t, err)
	spec := spec(limitStep(t, c.At("input", "solver")))
	spec.Limits, spec.Model.Model = bounds, "mockllm/main"
	spec.Scorers, spec.Target = []*agentv1.ScorerRef{{Name: "includes"}}, &agentv1.Target{Values: []string{"answer"}}
	plan, err := f.Runs.Check(t.Context(), "p", spec)
	if refused || c.At("expect", "task_error") == true {
		require.Error(t, err, "a bound that is refused")
		return
	}
	require.NoError(t, err)
	t.Equal(c.At("expect"), f.limitOutcome(t, f.Finish(f.launch(plan))))
}

func limitOutputs(t *goldentest.T, recorded any, prices *modelv1.Prices) (all []scripted) {
	list, _ := recorded.([]any)
	for i, item := range list {
		var o struct {
			Text  *string         `json:"text"`
			Call  string          `json:"call"`
			Args  json.RawMessage `json:"args"`
			Usage json.RawMessage `json:"usage"`
		}
		decode(t, item, &o)
		output := servicetest.Say("answer")
		switch {
		case o.Call != "":
			output = servicetest.Say("", call(fmt.Sprint("c", i), o.Call, string(o.Args)))
		case o.Text != nil:
			output = servicetest.Say(*o.Text)
		}
		if o.Usage != nil {
			var err error
			output.Usage, err = chat.ParseUsage(o.Usage)
			require.NoError(t, err)
		}
		all = append(all, priced(scripted{output: output}, prices))
	}
	return all
}

// limitStep is the step of a recorded solver: `chat` is made for these cases, the others are ways of the solver
// generate.
func limitStep(t *goldentest.T, recorded any) *agentv1.AgentRef {
	solver, _ := recorded.(map[string]any)
	switch solver["kind"] {
	case "chat":
		document, err := json.Marshal(without(solver, "kind"))
		require.NoError(t, err)
		return step("chat", string(document))
	case "loop", "single":
		return step("generate", fmt.Sprintf(`{"tool_calls": %q}`, solver["kind"]), "noop", "wait")
	}
	t.Fatalf("no solver is %v", solver["kind"])
	return nil
}

// limitOutcome is what a case records of a run that has ended.
func (f *fleet) limitOutcome(t *goldentest.T, s *run.State) map[string]any {
	lengths, events, hits := []any{}, []any{}, []any{}
	for _, r := range f.Models.Requests() {
		lengths = append(lengths, len(r.GetMessages()))
	}
	for _, e := range f.transcriptOf(s.Name) {
		switch e.Event {
		case "model", "tool", "score", "sample_limit":
			events = append(events, e.Event)
		}
		if e.Event == "sample_limit" {
			hits = append(hits, map[string]any{"type": e.Type, "limit": *e.Limit})
		}
	}
	roles := []any{}
	for _, m := range s.Messages() {
		roles = append(roles, chat.RoleName(m.GetRole()))
	}
	store := map[string]any{}
	for key, value := range s.Store() {
		store[key] = asJSON(t, json.RawMessage(value))
	}
	scores := map[string]any{}
	for _, named := range s.FinalScores() {
		scores[named.GetName()] = scorewire.ToValue(named.GetScore().GetValue())
	}
	got := map[string]any{
		"status": "success", "error": s.Error != nil, "limit": nil, "provider_calls": len(lengths), "input_lengths": lengths, "messages": roles, "scores": scores,
		"total_tokens": s.Total.GetTotalTokens(), "turn_count": s.Turns, "store": store, "events": events, "sample_limit_events": hits,
	}
	if s.Limit != nil {
		got["limit"] = map[string]any{"type": enum.Word(s.Limit.GetType()), "limit": s.Limit.GetLimit(), "reason": s.Limit.GetMessage()}
	}
	if bounds := s.Limits.Bounds(); bounds != nil && bounds.Tokens != nil {
		got["token_limit"], got["token_limit_usage"], got["token_limit_type"] = bounds.GetTokens(), s.Limits.Metered(s.Total), "all"
		if bounds.GetTokenFormula() != "" {
			got["token_limit_type"] = bounds.GetTokenFormula()
		}
	}
	return got
}

// chatDefinition describes an agent that takes n turns of a conversation, as the recorded solver does. It has no bounds
// of its own, as no agent has.
func chatDefinition() agent.Definition {
	return agent.Definition{
		Name: "chat", Parameters: `{"type": "object"}`, Resolve: func(*agentv1.AgentRef) error { return nil },
		New: func(step *agentv1.AgentRef) (agent.Machine, error) {
			c := &chatAgent{}
			err := agent.Params(step, c)
			return c, err
		},
	}
}

// chatAgent is the agent.
type chatAgent struct {
	agent.NoTools `json:"-"`
	agent.Track   `json:"-"`
	N             int `json:"n"`
	notes         int // how often the number of rounds was noted
}

// Apply implements [agent.Machine].
func (c *chatAgent) Apply(e *agentv1.Event) {
	c.Track.Apply(e)
	if e.GetStoreChanged() != nil {
		c.notes++
	}
}

// Next implements [agent.Machine].
func (c *chatAgent) Next(v agent.View) (agent.Action, error) {
	var action agent.Action
	if c.At == agent.Answered {
		action.Events = append(action.Events, agent.Add(chat.FirstMessage(v.Answer())))
	}
	note, err := agent.Store("rounds", c.notes)
	if err != nil {
		return action, err
	}
	action.Events = append(action.Events, note)
	if c.notes == c.N {
		action.Then = agent.Done{}
		return action, nil
	}
	action.Events = append(action.Events, agent.Add(agent.Says(modelv1.Role_ROLE_USER, "And?")))
	action.Then = agent.Generate{NoTools: true}
	return action, nil
}
