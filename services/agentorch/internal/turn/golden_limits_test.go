package turn_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/goldentest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/limit"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/ownertest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/run"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/score/scorewire"
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
	plan, err := f.Launcher.Check(t.Context(), "p", spec)
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
		output := ownertest.Say("answer")
		switch {
		case o.Call != "":
			output = ownertest.Say("", call(fmt.Sprint("c", i), o.Call, string(o.Args)))
		case o.Text != nil:
			output = ownertest.Say(*o.Text)
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

// limitStep is the step of a recorded solver: `chat` is made for these cases, the others are ways of the solver generate.
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
		got["limit"] = map[string]any{"type": s.Limit.GetType(), "limit": s.Limit.GetLimit(), "reason": s.Limit.GetMessage()}
	}
	if bounds := s.Limits.Bounds(); bounds.GetTokens() > 0 {
		got["token_limit"], got["token_limit_usage"], got["token_limit_type"] = bounds.GetTokens(), s.Limits.Metered(s.Total), "all"
		if bounds.GetTokenFormula() != "" {
			got["token_limit_type"] = bounds.GetTokenFormula()
		}
	}
	return got
}

// chatDefinition describes an agent that takes n turns of a conversation, perhaps under a bound of its own.
func chatDefinition() agent.Definition {
	return agent.Definition{
		Name: "chat", Parameters: `{"type": "object"}`, Resolve: func(*agentv1.AgentRef) error { return nil },
		New: func(step *agentv1.AgentRef) (agent.Machine, error) { return newChat(step) },
	}
}

// chatAgent is the agent. It shows how a machine keeps bounds of its own: it counts what it used from the events, as the run does.
type chatAgent struct {
	agent.NoTools
	agent.Track
	n     int
	notes int // how often the number of rounds was noted
	use   limit.Use
	scope *limit.Set
	catch bool
	owns  bool // the scope's bound of messages stands in place of the run's
}

func newChat(step *agentv1.AgentRef) (*chatAgent, error) {
	var p struct {
		N      int             `json:"n"`
		Scoped json.RawMessage `json:"scoped"`
		Catch  *bool           `json:"catch"`
	}
	if err := agent.Params(step, &p); err != nil {
		return nil, err
	}
	c := &chatAgent{n: p.N, catch: p.Catch == nil || *p.Catch, use: limit.Use{Usage: &modelv1.ModelUsage{}}}
	if p.Scoped == nil {
		return c, nil
	}
	var kind string
	var bound json.Number
	if err := json.Unmarshal(p.Scoped, &[]any{&kind, &bound}); err != nil {
		return nil, err
	}
	c.owns = kind == limit.Message
	bounds, err := limits(map[string]any{kind + "_limit": bound})
	if err != nil {
		return nil, err
	}
	c.scope, err = limit.New(bounds)
	return c, err
}

// Apply implements [agent.Machine].
func (c *chatAgent) Apply(e *agentv1.Event) {
	c.Track.Apply(e)
	switch k := e.GetKind().(type) {
	case *agentv1.Event_ModelOutcome:
		c.use.Usage = chat.AddUsage(c.use.Usage, k.ModelOutcome.GetUsage())
		c.use.Turns++
	case *agentv1.Event_StoreChanged:
		c.notes++
	}
}

// Next implements [agent.Machine].
func (c *chatAgent) Next(v agent.View) (agent.Action, error) {
	action := agent.Action{OwnMessageLimit: c.owns}
	use := c.use
	use.Messages = len(v.Messages())
	rounds := c.notes
	if c.At == agent.Answered {
		if hit := c.scope.AfterGenerate(use); hit != nil {
			return c.bounded(action, hit)
		}
		if hit := c.scope.Growth(use.Messages + 1); hit != nil {
			return c.bounded(action, hit)
		}
		action.Events = append(action.Events, agent.Add(chat.FirstMessage(v.Answer())))
		use.Messages++
	}
	note, err := agent.Store("rounds", rounds)
	if err != nil {
		return action, err
	}
	action.Events = append(action.Events, note)
	if rounds == c.n {
		action.Then = agent.Done{}
		return action, nil
	}
	if hit := c.scope.Growth(use.Messages + 1); hit != nil {
		return c.bounded(action, hit)
	}
	action.Events = append(action.Events, agent.Add(agent.Says(modelv1.Role_ROLE_USER, "And?")))
	use.Messages++
	if hit := c.scope.BeforeGenerate(use); hit != nil {
		return c.bounded(action, hit)
	}
	action.Then = agent.Generate{NoTools: true}
	return action, nil
}

// bounded ends at the agent's own bound: it is caught and noted, or ends the run.
func (c *chatAgent) bounded(action agent.Action, hit *agentv1.LimitReached) (agent.Action, error) {
	if !c.catch {
		action.Then = agent.Stop{Limit: hit}
		return action, nil
	}
	caught, err := agent.Store("caught", map[string]any{"type": hit.GetType(), "limit": hit.GetLimit(), "value": hit.GetValue()})
	action.Events = append(action.Events, &agentv1.Event{Kind: &agentv1.Event_LimitHit{LimitHit: &agentv1.LimitHit{Limit: hit}}}, caught)
	action.Then = agent.Done{}
	return action, err
}
