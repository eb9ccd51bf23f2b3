package react

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/agent"
)

// kindContinue is the kind of a worker's function that decides how to continue.
const kindContinue = "continue"

// consulted returns the worker that a step's agent calls.
func consulted(step *agentv1.AgentRef) ([]*agentv1.WorkerRef, error) {
	var p params
	if err := agent.Params(step, &p); err != nil || p.OnContinue.worker() == "" {
		return nil, err
	}
	return []*agentv1.WorkerRef{{Kind: kindContinue, Name: p.OnContinue.worker()}}, nil
}

// pinned returns the step's pinned record of a worker, or nil.
func pinned(step *agentv1.AgentRef, name string) *agentv1.WorkerRef {
	for _, ref := range step.GetWorkers() {
		if ref.GetKind() == kindContinue && ref.GetName() == name {
			return ref
		}
	}
	return nil
}

// told continues as the worker decided.
func (m *machine) told(run agent.View) (agent.Action, error) {
	answer := &workerv1.ContinueResultPayload{}
	if err := protojson.Unmarshal([]byte(m.Answer), answer); err != nil {
		return agent.Action{}, fmt.Errorf("what the worker %s told cannot be read: %w", m.guide.GetName(), err)
	}
	switch decision := answer.GetDecision().(type) {
	case *workerv1.ContinueResultPayload_Message:
		text := decision.Message
		if !m.params.Submit.Off {
			text = fill(text, m.submitName())
		}
		return agent.Action{Events: []*agentv1.Event{agent.Add(agent.Says(modelv1.Role_ROLE_USER, text))}}, nil
	case *workerv1.ContinueResultPayload_Conversation:
		return agent.Action{Events: []*agentv1.Event{agent.Replace(kindContinue, run.Messages(), decision.Conversation.GetMessages())}}, nil
	case *workerv1.ContinueResultPayload_Proceed:
		if !decision.Proceed {
			return m.done(run), nil
		}
	}
	if len(chat.LastAssistant(run.Messages()).GetToolCalls()) > 0 {
		return m.turn(run)
	}
	more := continueShort
	if !m.params.Submit.Off {
		more = fill(continuePrompt, m.submitName())
	}
	return agent.Action{Events: []*agentv1.Event{agent.Add(agent.Says(modelv1.Role_ROLE_USER, more))}}, nil
}
