package agenttest

import (
	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
)

const noParameters = `{"type": "object", "additionalProperties": false}`

// Delegates describes the agent `delegates`, which starts others concurrently and reports each answer when it receives
// it, or the limit that ended the agent.
func Delegates(tasks ...agent.Start) agent.Definition {
	return definition("delegates", func() agent.Machine { return &delegating{tasks: tasks} })
}

// Listens describes the agent `listens`, which waits for an operator's message and then has a model answer.
func Listens() agent.Definition {
	return definition("listens", func() agent.Machine { return &listening{} })
}

func definition(name string, machine func() agent.Machine) agent.Definition {
	return agent.Definition{
		Name: name, Parameters: noParameters, Resolve: func(*agentv1.AgentRef) error { return nil },
		New: func(*agentv1.AgentRef) (agent.Machine, error) { return machine(), nil },
	}
}

// Task is the start of an agent that is called by its task, which is its first message.
func Task(name, task string) agent.Start {
	return agent.Start{
		Agent: &agentv1.AgentRef{Name: name, DisplayName: task}, Messages: []*modelv1.ChatMessage{agent.Says(modelv1.Role_ROLE_USER, task)},
	}
}

type delegating struct {
	agent.NoTools
	tasks []agent.Start
	began int
	heard []string
	said  int
}

// Watches implements [agent.Watching].
func (*delegating) Watches() {}

// Apply implements [agent.Machine].
func (m *delegating) Apply(e *agentv1.Event) {
	switch k := e.GetKind().(type) {
	case *agentv1.Event_AgentBegan:
		m.began++
	case *agentv1.Event_AgentEnded:
		text := chat.Completion(k.AgentEnded.GetContent())
		if k.AgentEnded.GetLimit() != nil {
			text = "limit " + enum.Word(k.AgentEnded.GetLimit().GetType())
		}
		m.heard = append(m.heard, text)
	case *agentv1.Event_MessageAdded:
		m.said++
	}
}

// Next implements [agent.Machine].
func (m *delegating) Next(agent.View) (agent.Action, error) {
	switch {
	case m.began == 0:
		var all agent.All
		for _, task := range m.tasks {
			task.Agent = proto.CloneOf(task.Agent)
			messages := make([]*modelv1.ChatMessage, len(task.Messages))
			for i, message := range task.Messages {
				messages[i] = proto.CloneOf(message)
			}
			task.Messages = messages
			all = append(all, task)
		}
		return agent.Action{Then: all}, nil
	case m.said < len(m.heard):
		return agent.Action{Events: []*agentv1.Event{agent.Add(agent.Says(modelv1.Role_ROLE_USER, m.heard[m.said]))}}, nil
	case len(m.heard) == len(m.tasks):
		return agent.Action{Then: agent.Done{}}, nil
	}
	return agent.Action{}, nil
}

type listening struct {
	agent.NoTools
	agent.Loop
	heard bool
}

// Apply implements [agent.Machine].
func (m *listening) Apply(e *agentv1.Event) {
	m.Loop.Apply(e)
	m.heard = m.heard || e.GetMessageAdded().GetContent().GetSource() == modelv1.MessageSource_MESSAGE_SOURCE_OPERATOR
}

// Next implements [agent.Machine].
func (m *listening) Next(v agent.View) (agent.Action, error) {
	if !m.heard {
		return agent.Action{Then: agent.Wait{}}, nil
	}
	action, over, err := m.Loop.Next(v, agent.Generate{}, agent.UntilDone)
	if over {
		action.Then = agent.Done{}
	}
	return action, err
}
