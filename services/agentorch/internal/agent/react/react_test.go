package react_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/agenttest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent/react"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/fleettest"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/servicetest"
)

func submit(answer string) *toolv1.ToolCall {
	arguments, _ := json.Marshal(map[string]string{"answer": answer})
	return chat.Call("s", "submit", string(arguments))
}

func stopped(text string, reason modelv1.StopReason) *modelv1.ModelOutput {
	output := servicetest.Say(text)
	output.Choices[0].StopReason = reason
	return output
}

func number(n float64) *agentv1.ScoreValue {
	return &agentv1.ScoreValue{Kind: &agentv1.ScoreValue_Number{Number: n}}
}

func grade(text string) *agentv1.ScoreValue {
	return &agentv1.ScoreValue{Kind: &agentv1.ScoreValue_Text{Text: text}}
}

func TestTurns(t *testing.T) {
	t.Parallel()
	const (
		refusal = modelv1.StopReason_STOP_REASON_CONTENT_FILTER
		full    = modelv1.StopReason_STOP_REASON_MODEL_LENGTH
	)
	add := chat.Call("c1", "add", `{}`)
	for name, c := range map[string]struct {
		params     string
		script     agenttest.Script
		effects    []string
		messages   []string // after the system message
		completion string
	}{
		"a submission ends it": {
			script:   agenttest.Script{Answers: []*modelv1.ModelOutput{servicetest.Say("So", submit("42"))}},
			effects:  []string{"ask", "call s submit", "done"},
			messages: []string{"U:go", "A:So\n\n42"}, completion: "So\n\n42",
		},
		"the answer alone": {
			params:   `{"submit": {"answer_only": true, "keep_in_messages": true}}`,
			script:   agenttest.Script{Answers: []*modelv1.ModelOutput{servicetest.Say("So", submit("42"))}},
			effects:  []string{"ask", "call s submit", "done"},
			messages: []string{"U:go", "A:So", "T:42"}, completion: "42",
		},
		"tools, then words, then a submission": {
			params:   `{"on_continue": "call {submit}"}`,
			script:   agenttest.Script{Answers: []*modelv1.ModelOutput{servicetest.Say("a", add), servicetest.Say("b"), servicetest.Say("", submit("42"))}},
			effects:  []string{"ask", "call c1 add", "ask", "ask", "call s submit", "done"},
			messages: []string{"U:go", "A:a", "T:ok", "A:b", "U:call submit", "A:42"}, completion: "42",
		},
		"a call that fails for a while is asked for again": {
			script:   agenttest.Script{Answers: []*modelv1.ModelOutput{nil, servicetest.Say("a", add), nil, nil, servicetest.Say("", submit("1"))}},
			effects:  []string{"ask", "ask", "call c1 add", "ask", "ask", "ask", "call s submit", "done"},
			messages: []string{"U:go", "A:a", "T:ok", "A:1"}, completion: "1",
		},
		"three refusals": {
			params:   `{"on_continue": "do"}`,
			script:   agenttest.Script{Answers: []*modelv1.ModelOutput{stopped("no 1", refusal), stopped("no 2", refusal), stopped("no 3", refusal)}},
			effects:  []string{"ask", "ask", "ask", "done"},
			messages: []string{"U:go", "A:no 1", "U:do", "A:no 2", "U:do", "A:no 3"}, completion: "no 3",
		},
		"a full context does not end a row of refusals": {
			params: `{"truncation": "last_message", "on_continue": "do"}`,
			script: agenttest.Script{Answers: []*modelv1.ModelOutput{
				stopped("no 1", refusal), stopped("no 2", refusal), stopped("cut", full), stopped("no 3", refusal),
			}},
			effects:  []string{"ask", "ask", "ask", "note overflow-trim", "ask", "done"},
			messages: []string{"U:do", "A:no 3"}, completion: "no 3",
		},
		"a refusal that is asked again leaves no trace": {
			params:   `{"retry_refusals": 2}`,
			script:   agenttest.Script{Answers: []*modelv1.ModelOutput{stopped("no", refusal), nil, stopped("no", refusal), servicetest.Say("", submit("y"))}},
			effects:  []string{"ask", "ask", "ask", "ask", "call s submit", "done"},
			messages: []string{"U:go", "A:y"}, completion: "y",
		},
		"a full context stops it": {
			script:   agenttest.Script{Answers: []*modelv1.ModelOutput{stopped("cut", full)}},
			effects:  []string{"ask", "note overflow-stop", "done"},
			messages: []string{"U:go", "A:cut"}, completion: "cut",
		},
		"a full context is the end where nothing is to be cut": {
			params:  `{"truncation": "disabled"}`,
			script:  agenttest.Script{Answers: []*modelv1.ModelOutput{servicetest.Say("a", add), stopped("cut", full), servicetest.Say("", submit("z"))}},
			effects: []string{"ask", "call c1 add", "ask", "note overflow-stop", "done"}, messages: []string{"U:go", "A:a", "T:ok", "A:cut"}, completion: "cut",
		},
		"a full context is trimmed": {
			params: `{"truncation": "last_message", "on_continue": "more"}`,
			script: agenttest.Script{Answers: []*modelv1.ModelOutput{
				servicetest.Say("a", add), stopped("cut", full), servicetest.Say("", submit("z")),
			}, Posts: []string{"on"}},
			effects:  []string{"ask", "call c1 add", "ask", "note overflow-trim", "wait", "ask", "call s submit", "done"},
			messages: []string{"T:ok", "U:on", "A:z"}, completion: "z",
		},
		"a wrong submission is answered": {
			params: `{"attempts": {"attempts": 3, "incorrect_message": "wrong"}}`,
			script: agenttest.Script{
				Answers: []*modelv1.ModelOutput{servicetest.Say("", submit("1")), servicetest.Say("", submit("2"))},
				Scores:  []*agentv1.ScoreValue{grade("I"), grade("C")},
			},
			effects:  []string{"ask", "call s submit", "score", "ask", "call s submit", "score", "done"},
			messages: []string{"U:go", "A:1", "U:wrong", "A:2"}, completion: "2",
		},
		"the last attempt is not scored in between": {
			params: `{"attempts": 2}`,
			script: agenttest.Script{
				Answers: []*modelv1.ModelOutput{servicetest.Say("", submit("1")), servicetest.Say("", submit("2"))}, Scores: []*agentv1.ScoreValue{number(0.5)},
			},
			effects: []string{"ask", "call s submit", "score", "ask", "call s submit", "done"}, completion: "2",
		},
		"scores by a table": {
			params:  `{"attempts": {"attempts": 2, "score_value": {"fine": 1}}}`,
			script:  agenttest.Script{Answers: []*modelv1.ModelOutput{servicetest.Say("", submit("1"))}, Scores: []*agentv1.ScoreValue{grade("fine")}},
			effects: []string{"ask", "call s submit", "score", "done"}, completion: "1",
		},
		"a tool of another's hands in": {
			params: `{"submit": {"tool": "hand_in"}}`,
			script: agenttest.Script{
				Answers: []*modelv1.ModelOutput{servicetest.Say("a", chat.Call("h1", "hand_in", `{}`)), servicetest.Say("b", chat.Call("h2", "hand_in", `{}`))},
				Results: func(call *toolv1.ToolCall) *toolv1.ToolResult {
					if call.GetId() == "h1" {
						return &toolv1.ToolResult{Content: chat.TextContent(""), Error: &toolv1.ToolCallError{Message: "refused"}}
					}
					return servicetest.Text("HANDED")
				},
			},
			effects: []string{"ask", "call h1 hand_in", "ask", "call h2 hand_in", "done"}, completion: "b\n\nHANDED",
		},
		"a worker says how to go on after each turn": {
			params: `{"on_continue": {"worker": "guide"}}`,
			script: agenttest.Script{
				Answers: []*modelv1.ModelOutput{servicetest.Say("a", add), servicetest.Say("b", add), servicetest.Say("c"), servicetest.Say("d"), servicetest.Say("e"), nil, servicetest.Say("f")},
				Told: []string{
					`{"proceed":true}`, `{"message":"use {submit}"}`, `{"proceed":true}`,
					`{"conversation":{"messages":[{"id":"n","role":"ROLE_USER","content":{"text":"anew"}}]}}`, `{"proceed":true}`, `{"proceed":false}`,
				},
			},
			effects:  []string{"ask", "call c1 add", "continue guide", "ask", "call c1 add", "continue guide", "ask", "continue guide", "ask", "continue guide", "ask", "continue guide", "ask", "ask", "continue guide", "done"},
			messages: []string{"U:anew", "A:e", "U:Please go on with the next step, as you judge best. If the task is done, call submit() with your answer.", "A:f"}, completion: "f",
		},
		"a worker's guidance without submit": {
			params: `{"submit": false, "on_continue": {"worker": "guide"}}`,
			script: agenttest.Script{
				Answers: []*modelv1.ModelOutput{servicetest.Say("a"), servicetest.Say("b"), servicetest.Say("c")},
				Told:    []string{`{"proceed":true}`, `{"message":"and {submit}?"}`, `{"proceed":false}`},
			},
			effects: []string{"ask", "continue guide", "ask", "continue guide", "ask", "continue guide", "done"},
			messages: []string{
				"U:go", "A:a", "U:Please go on with the next step, as you judge best.", "A:b", "U:and {submit}?", "A:c",
			},
			completion: "c",
		},
		"without submit an answer ends it": {
			params:   `{"submit": false}`,
			script:   agenttest.Script{Answers: []*modelv1.ModelOutput{servicetest.Say("a", add), servicetest.Say("that is all")}},
			effects:  []string{"ask", "call c1 add", "ask", "done"},
			messages: []string{"U:go", "A:a", "T:ok", "A:that is all"}, completion: "that is all",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.script.Spec = &agentv1.RunSpec{Input: []*modelv1.ChatMessage{fleettest.User("go")}}
			got := agenttest.Play(t, react.Definition(), fleettest.Step("react", c.params, "add"), c.script)
			require.NoError(t, got.Err)
			assert.Equal(t, c.effects, got.Effects)
			assert.Equal(t, c.completion, chat.Completion(got.Output()))
			if c.messages != nil {
				texts := fleettest.Texts(got.Messages())
				if got.Messages()[0].GetRole() == modelv1.Role_ROLE_SYSTEM {
					texts = texts[1:]
				}
				assert.Equal(t, c.messages, texts)
			}
		})
	}
}

func TestTheSystemMessageStandsFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		params   string
		contains []string
		lacks    []string
		none     bool
	}{
		"by default":     {"", []string{"submit()"}, []string{"{submit}"}, false},
		"instructions":   {`{"prompt": "Be kind."}`, []string{"Be kind.", "submit()"}, nil, false},
		"another name":   {`{"submit": {"name": "finish"}}`, []string{"finish()"}, []string{"submit()"}, false},
		"its parts":      {`{"prompt": {"assistant_prompt": "Only {submit}.", "submit_prompt": null}}`, []string{"Only submit."}, []string{"submit()"}, false},
		"without submit": {`{"submit": false}`, nil, []string{"submit"}, false},
		"a part that speaks of submit without it": {
			`{"submit": false, "prompt": {"assistant_prompt": "Call {submit}, {x}."}}`, []string{"Call submit, {x}."}, nil, false,
		},
		"an empty part is none": {`{"prompt": {"instructions": "Be kind.", "assistant_prompt": ""}}`, []string{"Be kind."}, []string{"\n", "submit"}, false},
		"an empty part on submit is none": {
			`{"prompt": {"assistant_prompt": "Help.", "submit_prompt": ""}}`, []string{"Help."}, []string{"\n"}, false,
		},
		"none": {`{"prompt": null}`, nil, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := agenttest.Play(t, react.Definition(), fleettest.Step("react", c.params), agenttest.Script{
				Spec:    &agentv1.RunSpec{Input: []*modelv1.ChatMessage{fleettest.User("go")}},
				Answers: []*modelv1.ModelOutput{stopped("x", modelv1.StopReason_STOP_REASON_MODEL_LENGTH)},
			})
			first := got.Messages()[0]
			assert.Equal(t, c.none, first.GetRole() != modelv1.Role_ROLE_SYSTEM)
			for _, part := range c.contains {
				assert.Contains(t, chat.Text(first), part)
			}
			for _, part := range c.lacks {
				assert.NotContains(t, chat.Text(first), part)
			}
		})
	}
}

func TestParametersAreChecked(t *testing.T) {
	t.Parallel()
	registry := agent.NewRegistry(react.Definition())
	for params, says := range map[string]string{
		`{"attempt": 2}`:                                "attempt",
		`{"attempts": 0}`:                               "attempts",
		`{"retry_refusals": -1}`:                        "retry_refusals",
		`{"truncation": "half"}`:                        "truncation",
		`{"submit": false, "on_continue": "x"}`:         "on_continue",
		`{"submit": {"name": ""}}`:                      "name",
		`{"submit": {"nam": "x"}}`:                      "nam",
		`{"prompt": {"assistent_prompt": "x"}}`:         "assistent_prompt",
		`{"submit": {"name": "add"}}`:                   "add",
		`{"attempts": {"score_value": {"C": "right"}}}`: "score_value",
	} {
		_, err := registry.Resolve(fleettest.Step("react", params, "add"))
		assert.ErrorContains(t, err, says, params)
	}
}

func TestAnAnswerThatIsNoTextIsAnError(t *testing.T) {
	t.Parallel()
	machine, err := react.Definition().New(resolved(t, ""))
	require.NoError(t, err)
	result := machine.Call(nil, chat.Call("s", "submit", `{"answer": 4}`))
	assert.Equal(t, toolv1.ToolErrorType_TOOL_ERROR_TYPE_PARSING, result.GetError().GetType())
	bound, set := machine.ToolBound("submit")
	assert.True(t, set)
	assert.Zero(t, bound, "an answer is never cut")
	_, set = machine.ToolBound("add")
	assert.False(t, set)
}

func resolved(t *testing.T, params string) *agentv1.AgentRef {
	t.Helper()
	step, err := agent.NewRegistry(react.Definition()).Resolve(fleettest.Step("react", params))
	require.NoError(t, err)
	return step
}
