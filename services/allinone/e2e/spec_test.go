package e2e_test

import (
	"fmt"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
)

// questions is a dataset of that many samples, question-1 and up, with the target "yes".
func questions(n int) *agentv1.Dataset {
	list := &agentv1.SampleList{}
	for i := range n {
		list.Samples = append(list.Samples, &agentv1.Sample{
			Id: fmt.Sprintf("question-%d", i+1), Input: []*modelv1.ChatMessage{chat.User("Is it so?")}, InputText: true,
			Target: &agentv1.Target{Values: []string{"yes"}},
		})
	}
	return &agentv1.Dataset{Name: "questions", Source: &agentv1.Dataset_Inline{Inline: list}}
}

// react is the agent with tools.
func react(tools ...string) []*agentv1.AgentRef {
	agent := &agentv1.AgentRef{Name: "react"}
	for _, name := range tools {
		agent.Tools = append(agent.Tools, &toolv1.ToolRef{Name: name})
	}
	return []*agentv1.AgentRef{agent}
}

// asked is an evaluation of questions with one call each, answered by the model.
func asked(n int, model *agentv1.ModelRef) *agentv1.EvalSpec {
	return &agentv1.EvalSpec{
		Task: "asked", Dataset: questions(n), Steps: []*agentv1.AgentRef{{Name: "generate"}},
		Models: []*agentv1.ModelRef{model}, Scorers: []*agentv1.ScorerRef{{Name: "match"}},
	}
}
